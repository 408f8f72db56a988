#include "launch/planning/plan_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace trifold::launch {

bool fits_hardware(const PlanReport& report) {
  return std::all_of(report.memory.begin(), report.memory.end(), [&](const MemoryReport& memory) {
    return report.forecast->fits(memory.predicted_total());
  });
}

nlohmann::ordered_json parts_json(const StepTime& time) {
  nlohmann::ordered_json parts;
  for (const auto& [name, seconds] : named_parts(time)) parts[name] = seconds;
  return parts;
}

namespace {

using Json = nlohmann::ordered_json;

Json zero_json(const ZeroTable& table) {
  Json rows = Json::array();
  for (const ZeroTableRow& row : table.rows)
    rows.push_back({{"stage", row.stage},
                    {"weight_bytes", row.held.parameters},
                    {"gradient_bytes", row.held.gradients},
                    {"optimizer_bytes", row.held.optimizer},
                    {"activation_bytes", row.held.predicted_activations},
                    {"paper_bytes", row.formula.all()}});
  return {{"ranks", table.shared}, {"stages", std::move(rows)}};
}

// Seconds of a step's exchanges; null if there are none, or if their time is not known apart from the blocks'.
Json context_json(const PlanReport& report, size_t rank) {
  if (report.context == 1 || report.exchanges.empty()) return nullptr;
  return {{"hidden", report.exchanges[rank].hidden}, {"exposed", report.exchanges[rank].exposed}};
}

Json rank_json(const PlanReport& report, size_t rank) {
  const MemoryReport& memory = report.memory[rank];
  const TrafficReport& traffic = report.traffic[rank];
  const SimulatedRank& simulated = report.simulation.ranks[rank];
  return {{"busy_seconds", simulated.busy},
          {"idle_seconds", simulated.idle},
          {"peak_in_flight", simulated.peak_in_flight},
          {"weight_versions", simulated.versions},
          {"weight_bytes", memory.parameters},
          {"gradient_bytes", memory.gradients},
          {"optimizer_bytes", memory.optimizer},
          {"activation_bytes", memory.predicted_activations},
          {"workspace_bytes", memory.workspace},
          {"bytes", memory.predicted_total()},
          {"offloaded_bytes", memory.offloaded},
          {"offloaded_activations",
           {{"file_bytes", memory.offloaded_activations},
            {"written_bytes", traffic.offloaded},
            {"read_bytes", traffic.fetched},
            {"wait_seconds", simulated.fetch_wait / report.batches}}},
          {"sent_bytes",
           {{"tensor", traffic.tensor},
            {"context", traffic.context},
            {"experts", traffic.experts},
            {"pipeline", traffic.pipeline},
            {"data", traffic.data}}},
          {"context_seconds", context_json(report, rank)}};
}

Json dispatch_json(const std::optional<ExpertReport>& dispatch) {
  if (!dispatch) return {};
  return {{"load", dispatch->load},
          {"rounds", dispatch->rounds},
          {"alltoall_bytes", dispatch->all_to_all},
          {"allgather_bytes", dispatch->all_gather}};
}

Json automatic_json(const std::optional<AutomaticChoice>& choice) {
  if (!choice) return {};
  const auto name = [](const std::optional<Schedule>& schedule) {
    return schedule ? Json(schedule_name(*schedule)) : Json();
  };
  Json json = {{"order_of", name(choice->named)},
               {"seconds", choice->seconds},
               {"best_named", name(choice->best_named)}};
  if (choice->best_named) json["best_named_seconds"] = choice->best_named_seconds;
  return json;
}

Json record_json(const Record& record) {
  const Work& work = record.work;
  Json json = {{"operation", work.name},         {"times", record.times}, {"dtype", name_of(work.dtype)},
               {"shape", work.result.extents()}, {"flops", work.flops},   {"bytes", work.bytes},
               {"seconds", record.seconds}};
  if (work.kind == Work::Kind::Product || work.kind == Work::Kind::Attention)
    json.update(
        {{"rows", work.rows}, {"columns", work.columns}, {"inner", work.inner}, {"batch", work.batch}});
  if (work.kind == Work::Kind::Collective)
    json.update(
        {{"axes", axes_text(AxisSet::of_bits(work.group))}, {"ranks", work.ranks}, {"sent", work.sent}});
  return json;
}

Json records_json(const std::vector<RecordedBlock>& blocks) {
  Json all = Json::array();
  for (const RecordedBlock& block : blocks) {
    Json& json = all.emplace_back(Json{{"block", block.name}, {"blocks", block.blocks}});
    for (const auto& [part, records] :
         {std::pair{"F", &block.forward}, {"I", &block.input}, {"W", &block.weight}}) {
      json[part] = Json::array();
      for (const Record& record : *records) json[part].push_back(record_json(record));
    }
  }
  return all;
}

}  // namespace

nlohmann::ordered_json to_json(const PlanReport& report, const ZeroTable& zero,
                               const std::vector<RecordedBlock>& records) {
  Json stages = Json::array();
  for (const StageReport& stage : report.stages)
    stages.push_back({{"rank", stage.rank},
                      {"blocks", {stage.blocks.begin, stage.blocks.end}},
                      {"layers", stage.layers},
                      {"token_parts", stage.lookups},
                      {"parameters", stage.parameters},
                      {"cost_share", stage.cost_share}});
  Json ranks = Json::array();
  for (size_t rank = 0; rank < report.memory.size(); ++rank) ranks.push_back(rank_json(report, rank));
  Json reductions = Json::object();
  for (const ReductionReport& cost : report.reductions)
    reductions[cost.policy == ReducePolicy::Each ? "each" : "once"] = {{"chosen", cost.chosen},
                                                                       {"gradient_bytes", cost.gradients},
                                                                       {"sent_bytes", cost.sent},
                                                                       {"bytes", cost.total}};
  Json forecast;
  if (report.forecast) {
    for (const auto& [name, seconds] : named_parts(report.forecast->closed_form))
      forecast["parts"][name] = seconds;
    forecast["hardware"] = report.forecast->hardware.name;
    forecast["step_seconds"] = report.forecast->closed_form.all();
    forecast["fits"] = fits_hardware(report);
    forecast["activations_described"] = report.forecast->software.describes_memory();
  }
  Json all = {
      {"tensor_model_parallel_size", report.tensor},
      {"context_parallel_size", report.context},
      {"expert_model_parallel_size", report.experts},
      {"expert_tensor_parallel_size", report.expert_parts},
      {"expert_dispatch", dispatch_json(report.dispatch)},
      {"data_parallel_size", report.data},
      {"pipeline_model_parallel_size", report.pipeline},
      {"parameters", report.parameters},
      {"schedule", report.schedule},
      {"automatic", automatic_json(report.automatic)},
      {"stages_per_rank", report.stages_per_rank},
      {"micro_batches", report.micros},
      {"step_seconds", report.step_seconds},
      {"bubble", report.simulation.bubble},
      {"overlap_pairs", report.pairs},
      {"pairs_taking_turns", report.turns},
      {"step_seconds_without_turns", report.turns > 0 ? Json(report.seconds_without_turns) : Json()},
      {"overlapped_step_seconds", report.overlapped_seconds ? Json(*report.overlapped_seconds) : Json()},
      {"flops", report.flops},
      {"mfu", report.mfu},
      {"tokens", report.tokens},
      {"key_cache_bytes", report.key_cache_bytes},
      {"stages", std::move(stages)},
      {"reductions", std::move(reductions)},
      {"zero", zero_json(zero)},
      {"pipeline_ranks", std::move(ranks)}};
  if (report.forecast) all["closed_form"] = std::move(forecast);
  if (!records.empty()) all["records"] = records_json(records);
  return all;
}

}  // namespace trifold::launch
