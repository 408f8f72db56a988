// Forecast of a recommender's step, computed without starting ranks: where its tables are, what travels, how long a step
// takes; and the same measured on this host.
//
// A step, by its parts (embedding/step_marks.h), of the rank that has most of each; b = samples of a rank:
//   lookups           bytes that they move / memory bandwidth
//   bottom, top,
//   weight gradients  floating-point operations of matrix products / rate, and what is made between them,
//                     written once and read once for each use, / memory bandwidth
//   vectors,
//   gradients         the larger of what a rank sends and gets / link bandwidth, and a latency for each other
//                     rank
//   update            bytes that it moves / memory bandwidth, and the sums of replicated tables' gradients
//   dense update      2 (N - 1) / N of the MLPs' gradients / link bandwidth (with ZeRO, the sum's way to the
//                     owners and that of the weights back), five passes over what a rank updates / memory
//                     bandwidth
//   step              of the simulated plan (schedule/table_step.h): lookups + max(bottom, vectors) + top +
//                     max(weight gradients, gradients) + update + dense update; with the fetch of the next
//                     batch where no core is spare for it
#pragma once

#include <array>

#include "embedding/planner.h"
#include "embedding/step_marks.h"
#include "recommend/recommend.h"
#include "schedule/table_step.h"

namespace trifold {

// What a rank can do, while all ranks do the same.
struct RankRates {
  double flops = 0;            // of matrix products, in a second
  double memory = 0;           // bytes a second, of rows at random places
  double link = 0;             // bytes a second, out of a rank
  double latency = 0;          // seconds of a message
  double fetch_of_sample = 0;  // seconds to read a sample, send its ids and sort them
};

struct StepTimes {
  std::array<double, kStepPartNames.size()> parts{};  // seconds; by StepPart
  double step = 0;
  double& operator[](StepPart part) { return parts[static_cast<size_t>(part)]; }
  double operator[](StepPart part) const { return parts[static_cast<size_t>(part)]; }
};

// A step as its plan, and when a rank would do what of it.
struct PlannedStep {
  StepTimes times;
  RankPlan row;
  Simulation simulation;  // of the lines of a rank
  int64_t dense_parameters = 0;
  double flops_of_sample = 0;  // of matrix products, forward and backward
};

// `spare_core`: the next batch is fetched behind the step.
PlannedStep predict_step(const RecommenderSetup& setup, const std::vector<RankLoad>& loads,
                         const RankRates& rates, bool spare_core);

struct RecommendPlan {
  RecommenderSetup setup;
  Placement placement;
  std::vector<RankLoad> loads;
  std::vector<RecommenderMemory> memory;  // of each rank
  RankRates rates;
  PlannedStep step;
  // Of this host, with measure_steps; the prediction is then with the rates measured here.
  std::optional<StepTimes> measured;
  std::string host;  // "2 thread ranks, 1 thread each, x86-64-v3"
  // Bytes that rank 0 sent in a step to other ranks: counted, and by the loads.
  double counted_vectors = 0, formula_vectors = 0;
};

// The tables and dense features that the options say, where they have rows, or else the data, which are opened
// for them; `run` then has them too, so that what is measured on synthetic clicks does.
ClickSchema schema_to_plan(RecommendConfig& run);

// The forecast alone, of tables that are known. BadInput as below.
RecommendPlan plan_on_schema(const PlanRecommenderConfig& config, const ClickSchema& schema);

// Rows that are not given are those of --train-data, which are opened for them. BadInput where a rank needs
// more than --memory-limit (place_tables.h).
RecommendPlan make_recommend_plan(const PlanRecommenderConfig& given);

}  // namespace trifold
