#include "monitor/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "monitor/click_records.h"
#include "monitor/language_records.h"
#include "monitor/metrics_page.h"

namespace trifold {
namespace {

using Numbers = std::vector<std::pair<std::string, double>>;

Numbers numbers_of(const RunRecord& record) {
  Numbers numbers;
  for_each_number(record, [&](const std::string& path, double value) { numbers.emplace_back(path, value); });
  return numbers;
}

RunRecord record_with(nlohmann::ordered_json values) {
  RunRecord record;
  record.step = 7;
  record.values = std::move(values);
  return record;
}

TEST(RunRecord, HasNumbersByPath) {
  const RunRecord record = record_with({{"loss", 2.5},
                                        {"skipped", true},
                                        {"why", "overflow"},
                                        {"loads", {1, 3}},
                                        {"labels", {{"click", {{"auc", 0.5}}}}},
                                        {"classes", {{{"name", "a/b"}, {"accuracy", 0.25}}}}});
  EXPECT_EQ(numbers_of(record), (Numbers{{"loss", 2.5},
                                         {"skipped", 1},
                                         {"loads/0", 1},
                                         {"loads/1", 3},
                                         {"labels/click/auc", 0.5},
                                         {"classes/a/b/accuracy", 0.25}}));
  EXPECT_EQ(object_of(record).begin().key(), "step");
  EXPECT_EQ(object_of(record)["step"], 7);
  EXPECT_FALSE(object_of(record).contains("event"));
}

TEST(RunRecord, OfAnEvaluationHasItsPartInEveryPath) {
  RunRecord record = record_with({{"valid_loss", 2}, {"tokens", 64}});
  record.part = "valid";
  EXPECT_EQ(numbers_of(record), (Numbers{{"valid_loss", 2}, {"valid_tokens", 64}}));
  EXPECT_EQ(object_of(record)["tokens"], 64);
}

TEST(RunRecord, OfAnEventHasItsOwnNumbersAlone) {
  RunRecord record = record_with({{"rank", 3}, {"times", 2.5}, {"options", {{"lr", 1}}}});
  record.event = "slow_rank";
  EXPECT_EQ(numbers_of(record), (Numbers{{"slow_rank/rank", 3}, {"slow_rank/times", 2.5}}));
  EXPECT_EQ(object_of(record)["event"], "slow_rank");
}

TEST(RunRecord, SaysAfterWhichStepTheRunContinues) {
  RunRecord record = record_with({{"to_step", 4}});
  EXPECT_EQ(continues_after(record), std::nullopt);
  record.event = "loss_spike";
  EXPECT_EQ(continues_after(record), 4);
  record.values["to_step"] = "4";
  EXPECT_EQ(continues_after(record), std::nullopt);
  record.event = "start";
  EXPECT_EQ(continues_after(record), 7);
}

TEST(MetricsPage, HasNoStaleNumbers) {
  MetricsPage page;
  page.update(record_with({{"loss", 2.5}, {"loads", {1, 3}}}), 10);
  EXPECT_NE(page.text().find("\ntrifold_loss 2.5\n"), std::string::npos);
  page.update(record_with({{"loss", nullptr}, {"loads", {1, nullptr}}}), 11);
  EXPECT_NE(page.text().find("\ntrifold_loss NaN\n"), std::string::npos);
  EXPECT_NE(page.text().find("\ntrifold_loads{of=\"1\"} NaN\n"), std::string::npos);
}

TEST(LanguageRecords, HaveTermsOfTheLoss) {
  const MeanTerms terms{{"reward_margin", 0.25}, {"reward_accuracy", 1}};
  StepReport step;
  step.terms = terms;
  EXPECT_EQ(record_of(step).values["reward_margin"], 0.25);
  EXPECT_EQ(record_of(step).values["reward_accuracy"], 1);
  EvalReport evaluation;
  evaluation.terms = terms;
  EXPECT_EQ(record_of(evaluation).values["valid_reward_margin"], 0.25);
}

TEST(LanguageRecords, HaveNullForNumbersThatJsonLacks) {
  StepReport report;
  report.step = 3;
  report.loss = std::numeric_limits<double>::quiet_NaN();
  report.grad_norm = std::numeric_limits<double>::infinity();
  report.skip = StepSkip::Overflow;
  report.step_seconds = 0.5;
  report.samples = 4;
  const RunRecord record = record_of(report);
  EXPECT_TRUE(record.values["loss"].is_null());
  EXPECT_TRUE(record.values["grad_norm"].is_null());
  EXPECT_EQ(record.values["skip_reason"], "overflow");
  EXPECT_EQ(record.values["samples_per_second"], 8);
  for (const auto& [path, value] : numbers_of(record))
    EXPECT_EQ(std::isnan(value), path == "loss" || path == "grad_norm") << path;
}

TEST(LanguageRecords, OfTheStartShortenLongLists) {
  nlohmann::json options{{"lr", 0.5}, {"save", nullptr}, {"arrays", nlohmann::json::array()}};
  for (int i = 0; i < 300; ++i) options["data_path"].push_back(std::to_string(i));
  const RunRecord record = record_of_start({}, "pretrain", options);
  const nlohmann::ordered_json& kept = record.values["options"];
  EXPECT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept["data_path"].size(), 101U);
  EXPECT_EQ(kept["data_path"].back(), "... 300 in all");
}

TEST(ClickRecords, NameTheScoresOfEveryLabel) {
  ClickEvaluation evaluation{.step = 9, .labels = {{"click", {}}, {"buy", {}}}, .seconds = 2};
  for (LabelScores& label : evaluation.labels) label.scores.samples = 10;
  evaluation.labels[0].scores.auc = 0.75;
  const RunRecord record = record_of(evaluation);
  EXPECT_TRUE(record.values["valid_auc"].is_null());  // one label has none
  const Numbers numbers = numbers_of(record);
  EXPECT_NE(std::find(numbers.begin(), numbers.end(),
                      std::pair<std::string, double>("valid_labels/click/auc", 0.75)),
            numbers.end());
}

}  // namespace
}  // namespace trifold
