// Helpers for tests of streamed text: corpora of every kind of file, and the options to stream them.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/random.h"
#include "support/packed.h"
#include "support/test_data.h"
#include "text/samples.h"
#include "text/token_blocks.h"
#include "unit/text_test_support.h"

namespace trifold::test {

inline const std::string kPieces = test_data() + "/data/shakespeare_400.model";
inline constexpr int64_t kLength = 64;

// Pseudo-random lines of words.
inline std::string lines(uint64_t seed, size_t bytes) {
  std::string text;
  const PhiloxKey key = philox_key(seed, "lines");
  for (uint64_t i = 0; text.size() < bytes; ++i) {
    text += fmt::format("{:x}", philox_word(key, i));
    text.push_back(philox_word(key, i) % 7 == 0 ? '\n' : ' ');
  }
  return text + "\n";
}

inline std::string json_lines(uint64_t seed, size_t bytes) {
  std::string text;
  const std::string plain = lines(seed, bytes);
  for (size_t at = 0; at < plain.size();) {
    const size_t size = 20 + philox_word(philox_key(seed, "sizes"), at) % 900;
    text += nlohmann::json{{"id", at}, {"text", plain.substr(at, size)}}.dump() + "\n";
    if (at % 3 == 0) text += "  \n";
    at += size;
  }
  return text;
}

// About 1.5 MB of every kind in a folder, several blocks of `options_of`. Little JSON, because sanitizers slow its
// parser most.
inline void write_corpus(const TempDir& dir) {
  std::filesystem::create_directories(dir.file("corpus/below/.hidden"));
  for (int i = 0; i < 5; ++i)
    write_file(dir.file(fmt::format("corpus/small_{}.txt", i)), lines(static_cast<uint64_t>(i), 3000));
  write_file(dir.file("corpus/below/large.txt"), lines(10, 600000));
  write_file(dir.file("corpus/below/lines.jsonl"), json_lines(11, 100000));
  write_packed(dir.file("corpus/packed.jsonl.gz"), json_lines(12, 125000));
  write_packed(dir.file("corpus/packed.txt.zst"), lines(13, 550000));
  write_file(dir.file("corpus/below/.hidden/x"), "not to be read");
  write_file(dir.file("corpus/.hidden.parquet"), "nor this");
  write_file(dir.file("corpus/empty.txt"), "");
}

inline StreamOptions options_of(const std::string& path, const std::string& split = "1") {
  StreamOptions options;
  options.files = std::make_shared<const StreamFiles>(std::vector<std::string>{path});
  options.tokenizer = std::make_shared<const ByteTokenizer>();
  options.fractions = SplitFractions(split);
  options.seq_length = kLength;
  options.seed = 5;
  options.threads = 2;
  options.first_block = size_t{1} << 18;
  return options;
}

inline std::vector<int32_t> sample(const Samples& samples, int64_t index) {
  std::vector<int32_t> out(kLength + 1);
  samples.read(index, out);
  return out;
}

}  // namespace trifold::test
