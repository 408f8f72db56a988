// Regular expressions of a tokenizer.json: the translation to ICU's dialect; words cut by an accepted pattern must
// together be the text.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "tokenize/pre_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string pattern(reinterpret_cast<const char*>(data), size);
  static const std::string kText =
      "Hello, 12\xc2\xbd w\xc3\xb6rlds!\r\n\n  it's\t\xe6\x9d\xb1\xe4\xba\xac \xf0\x9f\x98\x80 aaaaab";
  nlohmann::json split;
  split["type"] = "Split";
  split["pattern"]["Regex"] = pattern;
  split["behavior"] = "Isolated";
  split["invert"] = false;
  try {
    (void)split.dump();
  } catch (const nlohmann::json::exception&) {  // not UTF-8, which no JSON file gives
    return 0;
  }
  try {
    const trifold::PreTokenizer cutter(split);
    std::string all;
    try {
      for (const std::string_view word : cutter.cut(kText).views) {
        if (word.empty()) __builtin_trap();
        all += word;
      }
    } catch (const trifold::Error&) {  // it would take too long
      return 0;
    }
    if (all != kText) __builtin_trap();
  } catch (const trifold::Error& error) {
    if (error.kind() != trifold::ErrorKind::BadInput) throw;  // ends the fuzzer
  }
  return 0;
}
