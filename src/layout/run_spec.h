// RunSpec: the values that one step of a run depends on: model, mesh, data types, order of computation, batch and the
// state that ZeRO shards. It is made from the resolved options of a command. Code that counts, plans or forecasts a
// step reads a RunSpec instead of options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/fields/batch_sizes.h"
#include "config/fields/config.h"
#include "config/fields/schedule.h"
#include "core/layer_type.h"

namespace trifold {

// The order in which the stages of a pipeline compute.
struct OrderSpec {
  std::optional<Schedule> schedule;  // none: the order is in `file`
  std::string file;
  std::string costs_file;   // file of measured times for Schedule::Auto; empty: it uses counted work
  int stages_per_rank = 1;  // stages on each pipeline rank; if the order is in `file`, from the options, or 1
  int max_in_flight = 1;    // micro-batches in flight on a rank, for Schedule::Auto
  int64_t window = 1;       // steps after which an asynchronous schedule drains the pipeline

  // The schedule's name, or the file's.
  std::string text() const { return schedule ? std::string(schedule_name(*schedule)) : file; }
  // Whether weights are updated while other micro-batches are in flight.
  bool is_async() const { return schedule && trifold::is_async(*schedule); }
  // Whether the schedule has I and W instead of B.
  bool splits_backward() const;
};

struct RunSpec {
  ModelConfig model;  // includes the vocabulary if weights are counted
  MeshConfig mesh;    // includes the number of data-parallel ranks
  ZeroConfig zero;
  OptimizerConfig optimizer;
  OrderSpec order;
  DType dtype = DType::F32;      // weights, activations and gradients of activations
  DType sum_dtype = DType::F32;  // gradients of weights while ranks sum them
  bool products_in_8bit = false;
  bool narrow_factors = false;   // the products' factors have scales of blocks (ops/narrow.h)
  bool masks_documents = false;  // tokens attend only to tokens of their own document
  int64_t micro_batch_size = 1;
  int64_t global_batch_size = 1;  // samples of a planned step; while the batch grows, one of its sizes
  BatchSizes batch_sizes;         // all sizes of the run
  int64_t train_iters = 0;
  uint64_t seed = 0;

  // Micro-batches of a global batch on one data-parallel rank: of the steps that are planned, and of the largest batch
  // of the run, which decides what is the same for all of its steps.
  int micros() const;
  int most_micros() const;
  LayerType layer_type() const { return {dtype, narrow_factors}; }
  // This run with another size of the planned steps' batches.
  RunSpec with_batch(int64_t size) const;
  // Whether gradients can be reduced after each micro-batch: data-parallel ranks shard them, and the plan does not
  // include updates.
  bool can_reduce_each() const;
  // Whether gradients are reduced after each micro-batch: if they can be, as --zero-reduce says; by default only if
  // every step has one micro-batch, for which both policies have the same bits.
  bool reduces_each() const;
};

// `config` must be resolved, except that the vocabulary may be missing if weights are not counted.
RunSpec run_spec(const PretrainConfig& config);

}  // namespace trifold
