// RunSpec: what one step of a run depends on, as values: the model, the mesh, the types of numbers, the order of
// computation, the batch and what ZeRO shards. It is made from the resolved options of a command. What counts, plans or
// forecasts a step takes it, and asks no option again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/fields/config.h"
#include "config/fields/schedule.h"
#include "core/dtype.h"

namespace trifold {

// The order in which the stages of a pipeline compute.
struct OrderSpec {
  std::optional<Schedule> schedule;  // nothing: the order is in `file`
  std::string file;
  std::string costs_file;   // times for which Schedule::Auto is optimised; empty: counted ones
  int stages_per_rank = 1;  // on each pipeline rank; if the order is in `file`, the options' number, or 1
  int max_in_flight = 1;    // micro-batches on a rank, for Schedule::Auto
  int64_t window = 1;       // steps after which an asynchronous schedule drains the pipeline

  // Its name, or that of the file.
  std::string text() const { return schedule ? std::string(schedule_name(*schedule)) : file; }
  // Whether weights are updated while other micro-batches are in flight.
  bool is_async() const { return schedule && trifold::is_async(*schedule); }
  // Whether the schedule has I and W instead of B.
  bool splits_backward() const;
};

struct RunSpec {
  ModelConfig model;  // with its vocabulary, where weights are counted
  MeshConfig mesh;    // with the number of data-parallel ranks
  ZeroConfig zero;
  OptimizerConfig optimizer;
  OrderSpec order;
  DType dtype = DType::F32;      // weights, activations and gradients of activations
  DType sum_dtype = DType::F32;  // gradients of weights while ranks sum them
  bool products_in_8bit = false;
  bool masks_documents = false;  // tokens attend to those of their own document alone
  int64_t micro_batch_size = 1;
  int64_t global_batch_size = 1;
  int64_t train_iters = 0;
  uint64_t seed = 0;

  // Micro-batches of a global batch on one data-parallel rank.
  int micros() const;
  // Whether gradients can be reduced after each micro-batch: if data-parallel ranks shard them and updates are not inside
  // the plan.
  bool can_reduce_each() const;
  // Whether they are: if they can be, as --zero-reduce says; by default only if a step has one micro-batch, where both
  // policies give the same bits.
  bool reduces_each() const;
};

// `config` is resolved, except that a vocabulary may be missing where nothing counts weights.
RunSpec run_spec(const PretrainConfig& config);

}  // namespace trifold
