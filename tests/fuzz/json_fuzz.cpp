// JSON files: limits before parsing, and every value read as every type. The first byte chooses the limits.
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "core/read_json.h"

namespace {

template <class Take>
void taken(Take&& take) {
  try {
    take();
  } catch (const trifold::Error& error) {
    if (error.kind() != trifold::ErrorKind::BadInput) throw;  // ends the fuzzer
  }
}

void walk(const trifold::JsonView& value) {
  taken([&] { value.integer(-5, 5); });
  taken([&] { value.whole_number(); });
  taken([&] { value.number(); });
  taken([&] { value.text(); });
  taken([&] { value.flag(); });
  taken([&] { value.integers(0); });
  taken([&] { value.at("a").has("b"); });
  if (value.value().is_array()) value.each(walk);
  if (value.value().is_object())
    value.members([](const std::string&, const trifold::JsonView& member) { walk(member); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const trifold::JsonLimits limits{4096, data[0] % 64, 1 + data[0] * 4};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  taken([&] {
    const nlohmann::json whole = trifold::parse_json(text, "x.json", limits);
    walk(trifold::JsonView(whole, "x.json"));
  });
  return 0;
}
