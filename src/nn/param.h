// Parameters as the layers see them: a specification each, a list that numbers them, and the two small
// interfaces through which a layer reads a weight and adds to a gradient. Who holds the memory, and whether
// it is sharded, is decided above (rooms data_parallel and zero); layers never learn it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "mesh/shard_spec.h"

namespace trifold {

// Index into the ParamList of the model.
struct ParamId {
  int index = -1;
  bool operator==(const ParamId&) const = default;
};

// How a parameter starts. Normal values are keyed by (seed, name, global element index): the same on every
// mesh.
struct Init {
  enum class Kind { Zeros, Ones, Normal };
  Kind kind = Kind::Zeros;
  double std = 0;  // standard deviation of Normal
};

struct ParamSpec {
  ShardSpec shard;
  Init init;
  bool decay = false;  // takes part in weight decay (matrices do; biases and norm gains do not)
  int block = 0;       // the model's block that uses it
  // Rows from here on are padding, which makes the first dim divide evenly: zero for ever, because nothing
  // reads them, and in no checkpoint.
  std::optional<int64_t> rows;
  // A second use of another parameter's values (the output head of tied embeddings): reads the weight of
  // `tied_to`, has a gradient of its own, and the two gradients are added once, after both are complete.
  std::optional<ParamId> tied_to;
};

// All parameters of the model, in the order they were declared, and which of them this rank holds.
class ParamList {
 public:
  // Throws when the name is taken.
  ParamId add(ParamSpec spec);
  // Says that rows of a parameter from `rows` on are padding.
  void pad_after(ParamId id, int64_t rows) { specs_[static_cast<size_t>(id.index)].rows = rows; }
  const ParamSpec& operator[](ParamId id) const { return specs_[static_cast<size_t>(id.index)]; }
  int size() const { return static_cast<int>(specs_.size()); }
  std::span<const ParamSpec> specs() const { return specs_; }
  // Throws when there is none of that name.
  ParamId find(const std::string& name) const;
  // Ids of the model's parameters that own their values (not tied), held here or not, sorted by name: the
  // order in which norms are summed.
  std::vector<ParamId> by_name() const;
  // Elements of the whole model, tied uses counted once.
  int64_t global_elements() const;

  // The blocks whose parameters this rank holds; all of them by default. The list remains that of the model.
  void hold_blocks(std::span<const int> blocks);
  bool held(ParamId id) const;
  // True when the parameter has memory of its own here: it is held, and is no second use of one that is held
  // too. A tied use whose first use is on another rank is stored: a copy that is kept the same.
  bool stored(ParamId id) const;
  // True for a second use of a parameter that is held here too.
  bool local_tie(ParamId id) const { return held(id) && !stored(id); }
  // Elements of what is stored here, in local boxes.
  int64_t stored_elements() const;

 private:
  std::vector<ParamSpec> specs_;
  std::vector<bool> held_blocks_;  // empty: all
};

// Stands for the block that completes a unit of parameters, where the unit is the copy of a tied weight whose
// other use is on another rank.
constexpr int kCopyOfTied = -1;

// Reads weights. The tensor has the extent of the parameter's local box and is valid until the block is left.
class ParamSource {
 public:
  virtual ~ParamSource() = default;
  virtual Tensor weight(ParamId id) const = 0;
  // The weights as they were after `version` updates of this plan (Action::version); only asynchronous plans
  // ask for others than 0.
  virtual const ParamSource& at_version(int version) const {
    check(version == 0, "there is no version {} of the weights", version);
    return *this;
  }
  // The plan's Unshard and Reshard: start gathering the weights of the unit that `block` completes, and give
  // them up when what is on `stream` so far is done. Where all weights are resident there is nothing to do.
  virtual void unshard(int /*block*/, Stream& /*stream*/) {}
  virtual void reshard(int /*block*/, Stream& /*stream*/) {}
  // Makes `stream` wait for the weights that `block` reads; called before it is computed.
  virtual void enter(int /*block*/, Stream& /*stream*/) const {}
};

// Gradients that layers add to; same shape as the weight. At the start of a step, or where they are reduced
// after each micro-batch, when they are opened, none of them is *begun*: what is there is worth nothing, and
// whoever writes first assigns it. What was not begun by the time it is reduced is zero.
class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual Tensor grad(ParamId id) const = 0;
  // Whether there is something to add to. A sink that begins with zeros says yes.
  virtual bool begun(ParamId /*id*/) const { return true; }
  // Says that it is begun, or is not (after a write that did not happen).
  virtual void set_begun(ParamId /*id*/, bool /*begun*/) {}
  // `block` is about to add to its gradients. Opened already is fine.
  virtual void open(int /*block*/, Stream& /*stream*/) {}
  // The plan's ReduceGrad: the gradients of the bucket that `block` completes are ready, as of now on
  // `stream`. Starts their reduction and returns. Where the plan has one for each micro-batch it closes them,
  // and moves what has been added since the last.
  virtual void reduce(int block, Stream& stream) = 0;
  // The plan's ReduceTied: the gradient of the tied weight is complete on this rank, whose other use is on
  // another stage's rank. Starts adding up the two and returns; comes before `reduce` of the block that owns
  // the weight.
  virtual void reduce_tied(Stream& stream) = 0;
};

// Writes the initial values of a parameter's local box, zero where it is padding, into `weight`, which has
// that box's extent. A billion numbers take most of a minute of one core, so all threads of the pool draw.
void initialise(const ParamSpec& spec, Tensor weight, uint64_t seed, ThreadPool& pool);

}  // namespace trifold
