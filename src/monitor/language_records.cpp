#include "monitor/language_records.h"

#include <fmt/format.h>

#include <vector>

#include "core/host_memory.h"

namespace trifold {

const char* reason_of(StepSkip skip) {
  if (skip == StepSkip::Asked) return "asked for";
  return skip == StepSkip::Overflow ? "overflow" : "no counted token";
}

RunRecord record_of(const StepReport& report) {
  RunRecord record{.step = report.step};
  record.values = {{"consumed_samples", report.consumed_samples},
                   {"loss", finite_number(report.loss)},
                   {"grad_norm", finite_number(report.grad_norm)},
                   {"lr", finite_number(report.lr)},
                   {"loss_scale", finite_number(report.loss_scale)},
                   {"tokens", report.tokens},
                   {"sent_bytes", report.sent_bytes},
                   {"left_node_bytes", report.left_node_bytes},
                   {"step_seconds", finite_number(report.step_seconds)},
                   {"tokens_per_second", finite_number(report.tokens_per_second)},
                   {"samples_per_second", finite_number(report.samples_per_second())},
                   {"mfu", finite_number(report.mfu)},
                   {"resident_bytes", resident_memory()},
                   {"skipped", report.skipped()}};
  if (report.skipped()) record.values["skip_reason"] = reason_of(report.skip);
  if (!report.block_grad_norms.empty())
    record.values["block_grad_norms"] =
        std::vector<double>(report.block_grad_norms.begin(), report.block_grad_norms.end());
  if (report.weight_decay) record.values["weight_decay"] = finite_number(*report.weight_decay);
  for (size_t k = 0; k < report.source_tokens.size(); ++k)
    record.values["source_tokens"][report.sources[k]] = report.source_tokens[k];
  if (report.params_norm) record.values["params_norm"] = finite_number(*report.params_norm);
  if (report.num_zeros) record.values["num_zeros"] = *report.num_zeros;
  if (report.router_balance) {
    record.values["router_balance"] = finite_number(*report.router_balance);
    record.values["router_z"] = finite_number(report.router_z);
  }
  for (const auto& [name, mean] : report.terms) record.values[name] = finite_number(mean);
  for (int k = 0; k < report.later_losses_count; ++k)
    record.values[fmt::format("mtp_loss_{}", k + 1)] =
        finite_number(report.later_losses[static_cast<size_t>(k)]);
  if (!report.expert_loads.empty()) {
    record.values["expert_loads"] =
        std::vector<double>(report.expert_loads.begin(), report.expert_loads.end());
    record.values["expert_rounds"] = report.expert_rounds;
    if (!report.experts_dropped.empty())
      record.values["dropped"] =
          std::vector<double>(report.experts_dropped.begin(), report.experts_dropped.end());
  }
  return record;
}

RunRecord record_of(const EvalReport& report, const std::string& part) {
  RunRecord record{.step = report.step, .part = part};
  record.values = {{part + "_loss", finite_number(report.loss)}, {report.unit, report.tokens}};
  for (const auto& [name, mean] : report.terms)
    record.values[fmt::format("{}_{}", part, name)] = finite_number(mean);
  for (const ClassShare& share : report.classes) {
    nlohmann::ordered_json one{{"name", share.name},
                               {"labels", share.labels},
                               {"accuracy", finite_number(share.likeliest / share.labels)}};
    if (report.top_k) {
      one["top_k"] = *report.top_k;
      one["top_k_accuracy"] = finite_number(share.among / share.labels);
    }
    record.values["classes"].push_back(std::move(one));
  }
  return record;
}

RunRecord record_of(int64_t step, const Scores& scores) {
  RunRecord record{.step = step, .part = "valid"};
  for (const auto& [name, value] : scores) record.values[name] = finite_number(value);
  return record;
}

namespace {

constexpr size_t kMostWords = 100;

// A log's first line is read to recognise the file (run/command_files.h), so it must not become very long.
nlohmann::json shortened(const nlohmann::json& value) {
  if (!value.is_array() || value.size() <= kMostWords) return value;
  nlohmann::json first(std::vector<nlohmann::json>(value.begin(), value.begin() + kMostWords));
  first.push_back(fmt::format("... {} in all", value.size()));
  return first;
}

}  // namespace

RunRecord record_of_start(const StartReport& report, const std::string& command,
                          const nlohmann::json& options) {
  nlohmann::ordered_json set = nlohmann::ordered_json::object();
  for (const auto& item : options.items())
    if (!item.value().is_null() && item.value() != nlohmann::json::array())
      set[item.key()] = shortened(item.value());
  RunRecord record{.step = report.first_step - 1, .event = "start"};
  record.values = {{"command", command},
                   {"mesh", report.mesh},
                   {"operations", report.operations},
                   {"processes", report.processes},
                   {"changes", report.changes},
                   {"first_step", report.first_step},
                   {"last_step", report.last_step},
                   {"parameters", report.parameters},
                   {"train_flops_per_sample", finite_number(report.train_flops_per_sample)},
                   {"planned_bytes", report.planned_bytes},
                   {"options", std::move(set)}};
  if (report.peak_flops > 0) record.values["peak_flops"] = report.peak_flops;
  return record;
}

}  // namespace trifold
