// Headers of safetensors files, and their indices. The first byte says how many bytes follow the header.
#include <cstdint>
#include <string_view>

#include "checkpoint/safetensors.h"
#include "core/error.h"

namespace {

template <class Body>
void expect_bad_input_at_most(Body&& body) {
  try {
    body();
  } catch (const trifold::Error& error) {
    if (error.kind() != trifold::ErrorKind::BadInput) throw;  // ends the fuzzer
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int64_t bytes = int64_t{data[0]} * 4;
  expect_bad_input_at_most([&] {
    int64_t at = 0;
    for (const trifold::SafeTensor& tensor : trifold::parse_safetensors_header(text, bytes, "file")) {
      if (tensor.begin != at || tensor.end > bytes) __builtin_trap();
      at = tensor.end;
    }
    if (at != bytes) __builtin_trap();
  });
  expect_bad_input_at_most([&] {
    for (const auto& entry : trifold::parse_safetensors_index(text, "index"))
      if (entry.second.find('/') != std::string::npos) __builtin_trap();
  });
  return 0;
}
