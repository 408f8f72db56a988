#include <gtest/gtest.h>

#include "unit/config_testing.h"

namespace trifold {
namespace {

constexpr const char* kDense[] = {
    "--num-experts", "8", "--disable-bias-linear", "--moe-use-upcycling", "--load", "dense", "--finetune"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), std::begin(kDense), std::end(kDense));
  return more;
}

TEST(UpcyclingRules, AcceptCopiesThatComputeTheSame) {
  EXPECT_NO_THROW(pretrain(with({})));
  EXPECT_NO_THROW(
      pretrain(with({"--moe-router-score-function", "sigmoid", "--moe-router-enable-expert-bias"})));
}

TEST(UpcyclingRules, NameWhatWouldChangeTheFunction) {
  const auto wrong = [](const std::vector<std::string>& arguments) {
    return refusal([&] { pretrain(arguments); });
  };
  expect_contains(wrong({"--moe-use-upcycling"}), "--moe-use-upcycling needs --num-experts N: give both");
  expect_contains(
      wrong({"--num-experts", "8", "--disable-bias-linear", "--moe-use-upcycling", "--load", "dense"}),
      "--moe-use-upcycling needs --finetune");
  for (const auto& more : {std::vector<std::string>{"--moe-router-pre-softmax"},
                           {"--moe-router-topk-scaling-factor", "2"},
                           {"--moe-shared-expert-intermediate-size", "64"}})
    expect_contains(
        wrong(with(more)),
        fmt::format("{} is not possible with --moe-use-upcycling, because copies", fmt::join(more, " ")));
  expect_contains(
      wrong(with({"--moe-ffn-hidden-size", "16"})),
      "--moe-ffn-hidden-size 16 is not possible with --moe-use-upcycling: the network that is copied");
}

}  // namespace
}  // namespace trifold
