// manifest.json of a checkpoint. A wrong checksum is rejected at the end, so every input is also tried with a correct
// one.
#include <cstdint>
#include <string>

#include "checkpoint/manifest.h"
#include "files/file.h"

namespace {

void parse(const std::string& text) {
  try {
    const trifold::Manifest manifest = trifold::parse_manifest(text, "manifest.json");
    // An accepted manifest is written again from its parsed form, and must be accepted again.
    if (trifold::to_text(trifold::parse_manifest(trifold::to_text(manifest), "again")) !=
        trifold::to_text(manifest))
      __builtin_trap();
  } catch (const trifold::Error& error) {
    if (error.kind() != trifold::ErrorKind::BadInput) throw;  // ends the fuzzer
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  parse(text);
  constexpr size_t kTail = 12;  // eight digits, and the end
  if (size < kTail) return 0;
  text.resize(size - kTail);
  text += fmt::format("{:08x}\"\n}}\n", trifold::crc_of_memory(text.data(), text.size()));
  parse(text);
  return 0;
}
