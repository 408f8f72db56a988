// Shared by the tests of rules: a configuration without a problem, and changes to it that each cause one.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "config/commands/validate.h"
#include "unit/config_testing.h"

namespace trifold {

inline PretrainConfig sound() {
  PretrainConfig config;
  config.model.num_layers = 2;
  config.model.hidden_size = 128;
  config.model.num_attention_heads = 4;
  config.model.seq_length = 64;
  config.batch.micro_batch_size = 4;
  config.batch.train_iters = 100;
  config.lr.lr = 1e-3;
  config.data.data_path = {"text"};
  return config;
}

struct ValidateCase {
  const char* expected;  // part of the one finding that is reported
  std::function<void(PretrainConfig&)> change;
};

// Expects each change to cause one error, or one note, with the expected text and the options that it is about.
inline void expect_found(const std::vector<ValidateCase>& cases, Severity severity) {
  for (const ValidateCase& test : cases) {
    PretrainConfig config = sound();
    test.change(config);
    const Findings found = findings(config);
    const bool noted = severity == Severity::Note;
    const Words list = texts_of(noted ? found.notes : found.errors);
    ASSERT_EQ(list.size(), 1u) << test.expected << "\n" << testing::PrintToString(list);
    EXPECT_EQ(texts_of(noted ? found.errors : found.notes), Words{}) << test.expected;
    expect_contains(list[0], test.expected);
    expect_whole(config);
  }
}
inline void expect_reported(const std::vector<ValidateCase>& cases) { expect_found(cases, Severity::Error); }
inline void expect_noted(const std::vector<ValidateCase>& cases) { expect_found(cases, Severity::Note); }

}  // namespace trifold
