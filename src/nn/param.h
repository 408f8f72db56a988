// Parameters as layers see them: ParamSpec describes one, ParamList numbers all of a model, and through ParamSource and
// GradSink a layer reads a weight and adds to a gradient. Higher rooms (data_parallel, zero) implement these two and
// decide where the memory is and whether it is sharded; layers do not know.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "mesh/shard_spec.h"
#include "ops/quantized.h"

namespace trifold {

// Index into the ParamList of the model.
struct ParamId {
  int index = -1;
  bool operator==(const ParamId&) const = default;
};

// Initial values that are known before a model is made, such as the values of a file.
class GivenValues {
 public:
  virtual ~GivenValues() = default;
  // Writes the values of a box of the parameter `name` to `values`, which has the box's extent and any floating-point
  // type. May be called from several threads.
  virtual void read(const std::string& name, const Rect& box, Tensor values) const = 0;
};

// Initial values of a parameter. Random values are keyed by (seed, name, global element index), so they are the same on
// every mesh.
struct Init {
  enum class Kind { Zeros, Ones, Normal, Uniform, Given };
  Kind kind = Kind::Zeros;
  double std = 0;                      // standard deviation of Normal; Uniform is between -std and std
  const GivenValues* given = nullptr;  // for Given; outlives the parameters
};

struct ParamSpec {
  ShardSpec shard;
  Init init;
  bool decay = false;  // takes part in weight decay (matrices do; biases and norm gains do not)
  // A buffer: it has no gradient, and the trainer sets it between steps (nn/experts.h: the selection bias). Layers read
  // it without rounding, by ParamSource::exact. Every rank holds it whole.
  bool is_buffer = false;
  // Frozen: the run reads it but never changes it. It has neither a gradient nor optimizer state, and no layer computes
  // its gradient.
  bool frozen = false;
  // The form of a frozen matrix that memory holds quantized, of this rank's part. Its storage is bytes.
  std::optional<QuantizedForm> quantized;
  int block = 0;  // index of the model's block that uses it
  // A table, whose rows belong to ids: an embedding or an output layer. Rules for matrices do not take it for one.
  bool is_table = false;
  // Factors of the learning rate and of the weight decay, with which the options' factors are multiplied
  // (optim/param_factors.h).
  double lr_factor = 1, decay_factor = 1;
  // The block adds to the gradient in several sums, or in one that continues the sum in memory. Then the gradient of a
  // tied use has memory of its own on every rank, so that the order of sums does not depend on the mesh.
  bool added_in_parts = false;
  // Rows from this one on are padding that makes the first dim divide evenly. They stay zero, because nothing reads
  // them, and checkpoints do not save them.
  std::optional<int64_t> rows;
  // The parameter whose values this one shares (the embedding, for the output head of tied embeddings). This second use
  // reads the weight of `tied_to` and has its own gradient; the two gradients are added once, when both are complete.
  std::optional<ParamId> tied_to;

  // The length of this rank's part in memory: in elements, or in bytes if it is quantized.
  int64_t stored_length() const { return quantized ? quantized->bytes() : shard.local.elements(); }
};

// All parameters of the model, in the order they were declared, and which of them this rank holds.
class ParamList {
 public:
  // Throws if the name is already used, unless by other parts of the same tensor.
  ParamId add(ParamSpec spec);
  // Declares the rows of a parameter from `rows` on as padding; the second form does so for all parts of a name.
  void pad_after(ParamId id, int64_t rows) { specs_[static_cast<size_t>(id.index)].rows = rows; }
  void pad_after(const std::string& name, int64_t rows);
  // Multiplies the standard deviation of normal initial values.
  void scale_init(ParamId id, double factor) { specs_[static_cast<size_t>(id.index)].init.std *= factor; }
  void set_added_in_parts(ParamId id) { specs_[static_cast<size_t>(id.index)].added_in_parts = true; }
  // Declares a parameter, and the parameter whose values it shares, as a table.
  void set_table(ParamId id) {
    specs_[static_cast<size_t>(id.index)].is_table = true;
    if (const auto& first = specs_[static_cast<size_t>(id.index)].tied_to) set_table(*first);
  }
  void set_factors(ParamId id, double lr, double decay) {
    specs_[static_cast<size_t>(id.index)].lr_factor = lr;
    specs_[static_cast<size_t>(id.index)].decay_factor = decay;
  }
  void set_buffer(ParamId id) { specs_[static_cast<size_t>(id.index)].is_buffer = true; }
  void set_quantized(ParamId id, const QuantizedForm& form) {
    specs_[static_cast<size_t>(id.index)].quantized = form;
  }
  void set_frozen(ParamId id, bool frozen) { specs_[static_cast<size_t>(id.index)].frozen = frozen; }
  const ParamSpec& operator[](ParamId id) const { return specs_[static_cast<size_t>(id.index)]; }
  int size() const { return static_cast<int>(specs_.size()); }
  std::span<const ParamSpec> specs() const { return specs_; }
  // The parameter of that name, or its first part. Throws if there is none.
  ParamId find(const std::string& name) const;
  // Ids of the model's parameters without tied uses, held here or not, sorted by name: the order in which norms are
  // summed. Parts of one name are in the order of their blocks.
  std::vector<ParamId> by_name() const;
  // Elements of the whole model, without tied uses.
  int64_t global_elements() const;

  // Sets the blocks whose parameters this rank holds (default: all). The list still covers the whole model.
  void hold_blocks(std::span<const int> blocks);
  bool held(ParamId id) const;
  // Whether the parameter has its own memory on this rank: it is held, and it is not tied to one that is held too. A
  // tied use whose first use is on another rank is stored, as a copy that is kept equal.
  bool stored(ParamId id) const;
  // Whether it is held and tied to a parameter that is held too.
  bool local_tie(ParamId id) const { return held(id) && !stored(id); }
  // The number of elements stored on this rank, in local boxes.
  int64_t stored_elements() const;

 private:
  std::vector<ParamSpec> specs_;
  std::unordered_map<std::string, int> first_of_name_;  // index of the first parameter with a name
  std::vector<bool> held_blocks_;                       // empty: all
};

// Takes the place of a completing block's index for a unit that is the copy of a tied weight from another rank.
constexpr int kCopyOfTied = -1;

// Reads weights. The tensor has the extent of the parameter's local box, or is u8 [bytes] if the parameter is quantized
// (nn/product_weight.h reads both), and is valid until the block is left.
class ParamSource {
 public:
  virtual ~ParamSource() = default;
  virtual Tensor weight(ParamId id) const = 0;
  // A buffer's values in accumulate_type.
  virtual Tensor exact(ParamId id) const { return weight(id); }
  // The weights after `version` updates in this plan (Action::version); above 0 only in asynchronous plans.
  virtual const ParamSource& at_version(int version) const {
    check(version == 0, "there is no version {} of the weights", version);
    return *this;
  }
  // Unshard and Reshard of a plan: start gathering the weights of the unit that `block` completes, and release them
  // when the work on `stream` so far is done. No effect if all weights are resident.
  virtual void unshard(int /*block*/, Stream& /*stream*/) {}
  virtual void reshard(int /*block*/, Stream& /*stream*/) {}
  // Makes `stream` wait for the weights that `block` reads; called before the block is computed.
  virtual void enter(int /*block*/, Stream& /*stream*/) const {}
};

// Gradients that layers add to, with the shapes of the weights. A gradient is *begun* once it has been written. At the
// start of a step, or at `open` if gradients are reduced after each micro-batch, none is: their content is undefined,
// and the first write assigns. A gradient that is reduced without having been begun is zero.
class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual Tensor grad(ParamId id) const = 0;
  // Whether the parameter has a gradient: `grad` may be called only then (ParamSpec::frozen).
  virtual bool trains(ParamId /*id*/) const { return true; }
  // Whether the next write must add. A sink that starts from zeros returns true.
  virtual bool begun(ParamId /*id*/) const { return true; }
  // Marks the gradient as begun, or as not begun (after a write that did not happen).
  virtual void set_begun(ParamId /*id*/, bool /*begun*/) {}
  // Called before `block` adds to its gradients; may be called again while they are open.
  virtual void open(int /*block*/, Stream& /*stream*/) {}
  // ReduceGrad of a plan: starts reducing the gradients of the unit that `block` completes, after the work on `stream`
  // so far. If the plan reduces after each micro-batch, this closes them; they then hold what was added since `open`.
  virtual void reduce(int block, Stream& stream) = 0;
  // ReduceTied of a plan: this rank's gradient of the tied weight, whose other use is on the rank of another stage, is
  // complete. Starts adding the two gradients. Must precede `reduce` of the block that owns the weight.
  virtual void reduce_tied(Stream& stream) = 0;
};

// Writes the initial values of a parameter's local box, zero for padding, into `weight`, which has that box's extent.
// Uses all threads of the pool: one core needs most of a minute for a billion values.
void initialise(const ParamSpec& spec, Tensor weight, uint64_t seed, ThreadPool& pool);

}  // namespace trifold
