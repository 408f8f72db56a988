// Forecast of a recommender's step, computed without starting ranks: table placement, traffic and step time; and
// measurements of the same on this host.
//
// The seconds of each part of a step (embedding/step_marks.h), for the rank that needs most, with N ranks:
//   lookups           bytes of memory traffic / memory bandwidth
//   bottom, top,
//   weight gradients  flops of matrix products / their rate + bytes of intermediate results, written once and read once
//                     for each use, / memory bandwidth
//   vectors,
//   gradients         max(bytes sent, bytes received) / link bandwidth + a latency for each other rank
//   update            bytes of memory traffic / memory bandwidth + the sums of replicated tables' gradients
//   dense update      2 (N - 1) / N of the bytes of the MLPs' gradients / link bandwidth (with ZeRO: reduce-scatter of
//                     gradients and all-gather of weights) + five passes over a rank's updated bytes / memory bandwidth
//   step              length of the simulated plan (schedule/table_step.h): lookups + max(bottom, vectors) + top +
//                     max(weight gradients, gradients) + update + dense update, + the fetch of the next batch if there
//                     is no spare core for it
//
// On this host the actions (layers, lookups, updates) can be measured too (MeasuredActions), because with their shapes
// they do not reach the rates of a large product and of random rows. Measured times replace the formulas. Exchanges are
// still forecast from the rates of the links, because an exchange takes as long as the slowest rank.
#pragma once

#include <array>
#include <optional>

#include "embedding/planner.h"
#include "embedding/step_marks.h"
#include "plan/costs.h"
#include "plan/pictures/step_svg.h"
#include "recommend/recommend.h"
#include "schedule/table_step.h"

namespace trifold {

// Seconds of the actions of a step, each measured alone while all ranks do the same (pipeline/action_times.h): for
// blocks the mean over the ranks, for tables and the dense update the maximum.
struct MeasuredActions {
  BlockSeconds bottom, top;
  double lookups = 0, update = 0, dense_update = 0;  // dense_update excludes the sum of gradients
};

// The rates of one rank while all ranks do the same.
struct RankRates {
  double flops = 0;                              // flops per second, for matrix products
  double memory = 0;                             // bytes per second, for random rows
  double link = 0;                               // bytes per second sent by a rank
  double latency = 0;                            // seconds of a message
  double fetch_of_sample = 0;                    // seconds to read a sample, send its ids and sort them
  std::optional<MeasuredActions> measured = {};  // on the same ranks with the same batch
};

struct StepTimes {
  std::array<double, kStepPartNames.size()> parts{};  // seconds; by StepPart
  double step = 0;
  double& operator[](StepPart part) { return parts[static_cast<size_t>(part)]; }
  double operator[](StepPart part) const { return parts[static_cast<size_t>(part)]; }
};

// The plan of a step and its simulation on a rank.
struct PlannedStep {
  StepTimes times;
  RankPlan row;
  Simulation simulation;  // simulation of the rank's actions
  int64_t dense_parameters = 0;
  double flops_of_sample = 0;  // flops of matrix products, forward and backward
};

// `spare_core`: fetching the next batch overlaps with the step.
PlannedStep predict_step(const RecommenderSetup& setup, const std::vector<RankLoad>& loads,
                         const RankRates& rates, bool spare_core);

struct RecommendPlan {
  RecommenderSetup setup;
  Placement placement;
  std::vector<RankLoad> loads;
  std::vector<RecommenderMemory> memory;  // memory of each rank
  RankRates rates;
  PlannedStep step;
  // Measured on this host, with measure_steps. The prediction then uses rates and actions measured on this host;
  // actions are measured in separate steps.
  std::optional<StepTimes> measured;
  std::string host;  // "2 thread ranks, 1 thread each, x86-64-v3"
  // Bytes that rank 0 sent to other ranks in a step: counted in a run, and computed from the loads.
  double counted_vectors = 0, formula_vectors = 0;
};

// The tables and dense features given by the options if they have rows, or else by the data, which are opened. They are
// also written to `run`, so that a measurement on synthetic clicks uses them.
ClickSchema schema_to_plan(RecommendConfig& run);

// The title of the picture of the step's simulation.
PictureText picture_text(const RecommendPlan& plan);

// Only the forecast, for a known schema. BadInput as below.
RecommendPlan plan_on_schema(const PlanRecommenderConfig& config, const ClickSchema& schema);

// Rows that are not given are read from --train-data. BadInput if a rank needs more than --memory-limit
// (place_tables.h).
RecommendPlan make_recommend_plan(const PlanRecommenderConfig& given);

}  // namespace trifold
