// Parameters as the layers see them: a specification each, a list that numbers them, and the two small
// interfaces through which a layer reads a weight and adds to a gradient. Higher rooms (data_parallel, zero)
// decide who holds the memory and whether it is sharded; layers do not know.
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

namespace trifold {

// Index into the ParamList of the model.
struct ParamId {
  int index = -1;
  bool operator==(const ParamId&) const = default;
};

// The initial values of a parameter. Normal values are keyed by (seed, name, global element index), so they
// are the same on every mesh.
struct Init {
  enum class Kind { Zeros, Ones, Normal };
  Kind kind = Kind::Zeros;
  double std = 0;  // standard deviation of Normal
};

struct ParamSpec {
  ShardSpec shard;
  Init init;
  bool decay = false;  // takes part in weight decay (matrices do; biases and norm gains do not)
  // No layer writes its gradient; the trainer sets it between steps (nn/experts.h: the bias of a router). Layers read
  // it without rounding, by ParamSource::exact. Whole on every rank.
  bool counted = false;
  int block = 0;  // the model's block that uses it
  // Rows from here on are padding that makes the first dim divide evenly. They stay zero, because nothing
  // reads them, and are not saved in checkpoints.
  std::optional<int64_t> rows;
  // A second use of another parameter's values (the output head of tied embeddings): it reads the weight of
  // `tied_to` and has its own gradient; the two gradients are added once, when both are complete.
  std::optional<ParamId> tied_to;
};

// All parameters of the model, in the order they were declared, and which of them this rank holds.
class ParamList {
 public:
  // Throws if the name is already used, but by other parts of the same tensor.
  ParamId add(ParamSpec spec);
  // Declares the rows of a parameter from `rows` on as padding; the second form, of all its parts.
  void pad_after(ParamId id, int64_t rows) { specs_[static_cast<size_t>(id.index)].rows = rows; }
  void pad_after(const std::string& name, int64_t rows);
  // Declares a parameter as one that the trainer sets.
  void count(ParamId id) { specs_[static_cast<size_t>(id.index)].counted = true; }
  const ParamSpec& operator[](ParamId id) const { return specs_[static_cast<size_t>(id.index)]; }
  int size() const { return static_cast<int>(specs_.size()); }
  std::span<const ParamSpec> specs() const { return specs_; }
  // The first part, if there are several. Throws if no parameter has that name.
  ParamId find(const std::string& name) const;
  // Ids of the model's parameters that own their values (not tied), held here or not, sorted by name: the
  // order in which norms are summed. Parts of one name are in the order of their blocks.
  std::vector<ParamId> by_name() const;
  // Elements of the whole model, tied uses counted once.
  int64_t global_elements() const;

  // Sets the blocks whose parameters this rank holds (all by default). The list still covers the whole model.
  void hold_blocks(std::span<const int> blocks);
  bool held(ParamId id) const;
  // Whether the parameter has memory of its own on this rank: it is held and is not a second use of one that
  // is held too. A tied use whose first use is on another rank is stored: a copy that is kept equal.
  bool stored(ParamId id) const;
  // Whether this is a second use of a parameter that is held here too.
  bool local_tie(ParamId id) const { return held(id) && !stored(id); }
  // The number of elements stored here, in local boxes.
  int64_t stored_elements() const;

 private:
  std::vector<ParamSpec> specs_;
  std::unordered_map<std::string, int> first_of_name_;  // index of the first parameter with a name
  std::vector<bool> held_blocks_;                       // empty: all
};

// Stands for the completing block of a unit that is the copy of a tied weight whose other use is on another
// rank.
constexpr int kCopyOfTied = -1;

// Reads weights. The tensor has the extent of the parameter's local box and is valid until the block is left.
class ParamSource {
 public:
  virtual ~ParamSource() = default;
  virtual Tensor weight(ParamId id) const = 0;
  // The same in the type of sums, for a parameter that is `counted`.
  virtual Tensor exact(ParamId id) const { return weight(id); }
  // The weights after `version` updates in this plan (Action::version); only asynchronous plans use versions
  // other than 0.
  virtual const ParamSource& at_version(int version) const {
    check(version == 0, "there is no version {} of the weights", version);
    return *this;
  }
  // The plan's Unshard and Reshard: start gathering the weights of the unit that `block` completes, and
  // release them when the work enqueued on `stream` so far is done. No effect if all weights are resident.
  virtual void unshard(int /*block*/, Stream& /*stream*/) {}
  virtual void reshard(int /*block*/, Stream& /*stream*/) {}
  // Makes `stream` wait for the weights that `block` reads; called before it is computed.
  virtual void enter(int /*block*/, Stream& /*stream*/) const {}
};

// Gradients that layers add to, with the shape of the weight. At the start of a step, or when they are opened
// if they are reduced after each micro-batch, none of them is *begun*: their content is undefined, and the
// first write assigns. A gradient that was not begun by the time of its reduction is zero.
class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual Tensor grad(ParamId id) const = 0;
  // Whether the gradient has content to add to. A sink that starts from zeros returns true.
  virtual bool begun(ParamId /*id*/) const { return true; }
  // Marks the gradient as begun, or as not begun (after a write that did not happen).
  virtual void set_begun(ParamId /*id*/, bool /*begun*/) {}
  // `block` is about to add to its gradients. May be called again while they are open.
  virtual void open(int /*block*/, Stream& /*stream*/) {}
  // The plan's ReduceGrad: the gradients of the bucket that `block` completes are ready, as of now on
  // `stream`. Starts their reduction and returns. If the plan reduces after each micro-batch, this closes
  // them and reduces what has been added since the last reduction.
  virtual void reduce(int block, Stream& stream) = 0;
  // The plan's ReduceTied: the gradient of the tied weight, whose other use is on another stage's rank, is
  // complete on this rank. Starts adding the two gradients and returns; must precede `reduce` of the block
  // that owns the weight.
  virtual void reduce_tied(Stream& stream) = 0;
};

// Writes the initial values of a parameter's local box, zero for padding, into `weight`, which has that box's
// extent. All threads of the pool take part: one core needs most of a minute for a billion numbers.
void initialise(const ParamSpec& spec, Tensor weight, uint64_t seed, ThreadPool& pool);

}  // namespace trifold
