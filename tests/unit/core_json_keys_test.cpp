// Equal keys of an object, of which the library would silently keep the last.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/read_json.h"
#include "support/files.h"

namespace trifold::test {
namespace {

TEST(JsonKeys, AreGivenOnce) {
  expect_has(error_of([] { parse_json(R"({"0": {"a": 1}, "0": {"b": 1}})", "mix.json"); }),
             "mix.json: an object has the key \"0\" twice: give it once");
  expect_has(error_of([] { parse_json(R"([{"x": {"deep": 1, "deep": 1}}])", ""); }),
             "the key \"deep\" twice");
  // Objects may share keys, one may have a key of an object in it, and a list keeps equal texts.
  EXPECT_EQ(parse_json(R"([{"a": {"a": 1}}, {"a": ["a", "a"]}])", "x").size(), 2U);
}

// Corpora are written by other programs, and read as Python reads them.
TEST(JsonKeys, MayRepeatInARecordOfACorpus) {
  EXPECT_EQ(parse_json_record(R"({"text": "one", "text": "two"})", "x")["text"], "two");
  EXPECT_EQ(parse_json_record(R"({"text": "one", "score": NaN, "text": "two"})", "x")["text"], "two");
}

}  // namespace
}  // namespace trifold::test
