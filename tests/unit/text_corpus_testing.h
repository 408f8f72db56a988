// Helpers for tests of corpora: small data sets and the tokens of their samples.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "text/corpus.h"
#include "unit/text_test_support.h"

namespace trifold::test {

inline std::vector<int32_t> row(const Tensor& tensor, int64_t sample) {
  const int32_t* from = tensor.as<int32_t>() + sample * tensor.dim(1);
  return {from, from + tensor.dim(1)};
}

// The tokens of one sample and the label of the last.
inline std::vector<int32_t> sample_text(const DataSource& source, int64_t index) {
  BatchBuffer buffer(1, source.seq_length());
  source.read(buffer.batch(), index);
  std::vector<int32_t> text = row(buffer.batch().tokens, 0);
  text.push_back(row(buffer.batch().labels, 0).back());
  return text;
}

inline DataConfig config_of(std::vector<std::string> paths, std::string split = "1,0,0") {
  DataConfig config;
  config.data_path = std::move(paths);
  config.split = std::move(split);
  return config;
}

// A text in which the token at position i identifies i: two bytes of position in steps of two.
inline std::string counting_text(int64_t tokens) {
  std::string text;
  for (int64_t i = 0; i < tokens; ++i)
    text.push_back(static_cast<char>(i % 2 == 0 ? i / 2 / 256 : i / 2 % 256));
  return text;
}

// Eight documents as in the golden case; token = 16 * document + offset.
inline void write_eight(const std::string& prefix) {
  std::vector<std::vector<int32_t>> documents;
  for (int size : {5, 7, 3, 11, 2, 9, 6, 4}) {
    std::vector<int32_t> document(static_cast<size_t>(size));
    std::iota(document.begin(), document.end(), 16 * static_cast<int32_t>(documents.size()));
    documents.push_back(document);
  }
  write_documents(prefix, TokenType::U16, documents);
}

}  // namespace trifold::test
