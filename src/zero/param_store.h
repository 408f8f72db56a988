// ParamStore: the weights of a rank in flat buffers (FlatLayout); layers see views. Either whole weights are resident,
// or (ZeRO stage 3) this rank holds only its slice of each unit; a unit's weights are then gathered from the sharding
// group before its blocks need them and released afterwards, as the plan says.
//
// Asynchronous schedules need several versions of the weights at once (weight stashing; Narayanan et al., "PipeDream",
// SOSP 2019). They are in a ring: version v of the running plan is in buffer (first + v) mod count, where `count` is
// the largest number of versions that a plan needs at the same time. Frozen weights (ParamSpec::frozen) have one version.
//
// A quantized weight (ParamSpec::quantized) is seen as the bytes of its storage; so are its segments and slices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data_parallel/data_groups.h"
#include "data_parallel/flat_layout.h"
#include "data_parallel/unit_buffers.h"
#include "files/file_memory.h"
#include "nn/param.h"
#include "ops/ops.h"

namespace trifold {

// The window through which an update streams a segment in a file: the elements in memory at the same time.
constexpr int64_t kOffloadWindow = int64_t{1} << 20;
static_assert(kOffloadWindow % kGrain == 0);

// Elements [begin, end) of a segment.
FlatLayout::Segment part_of(const FlatLayout::Segment& segment, int64_t begin, int64_t end);

// Writes the initial values of a segment of a parameter into `values` [segment.count] on the device of `ops`; complete
// on return. A copy of a tied weight gets the values of its original.
void initialise_segment(const FlatLayout& layout, const FlatLayout::Segment& segment, Tensor values,
                        uint64_t seed, const OpTable& ops, Stream& stream);

// The buffers for gathered weights of type `dtype`, in bytes, given the pairs of units that are gathered at the same time.
UnitBuffers buffers_of_units(const FlatLayout& layout, std::span<const std::pair<int, int>> together,
                             DType dtype);

class ParamStore final : public ParamSource {
 public:
  struct Options {
    int versions = 1;      // versions of the weights; must be 1 if they are sharded
    bool sharded = false;  // hold only slices
    // Folder of the file that holds slices and the optimizer's state; empty: they are in memory.
    std::string offload = {};
    // The optimizer's state is in host memory, which the device accesses during the update.
    bool state_on_host = false;
  };

  // Gathers and publications run on `comm_stream`. References must outlive the store. Weights start at zero.
  ParamStore(const FlatLayout& layout, const DataGroups& groups, const OpTable& ops, DType dtype,
             const Options& options, Stream& comm_stream);
  // Waits for communication in flight, which uses this memory.
  ~ParamStore() override;
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  // If the weights are sharded, allocates buffers for plans that gather these pairs of units, and the pairs of earlier
  // calls, at the same time. Called between plans.
  void reserve(const std::vector<std::pair<int, int>>& together);

  // The weight in version 0, which between plans is the newest. Waits for communication in flight. If weights are
  // sharded, throws unless the unit is gathered.
  Tensor weight(ParamId id) const override;
  // A separate tensor if weights have 16 bits, to which all ranks must write the same values.
  Tensor exact(ParamId id) const override;
  const ParamSource& at_version(int version) const override;
  void unshard(int block, Stream& stream) override;
  void reshard(int block, Stream& stream) override;
  void enter(int block, Stream& stream) const override;

  // The elements of a segment that this rank owns, in version `version`, to be read or updated in place.
  Tensor owned(const FlatLayout::Segment& segment, int version = 0) const;
  // For an owned segment in a file: prefetches it (expect), or releases its memory (release).
  void expect(const FlatLayout::Segment& segment) const;
  void release(const FlatLayout::Segment& segment) const;
  // As in Options.
  const std::string& offload() const { return options_.offload; }
  bool state_on_host() const { return options_.state_on_host; }
  // Called after the owners have updated their slices: starts sending the unit's weights to all ranks that hold them
  // whole. No effect if the weights are sharded.
  void publish(const FlatLayout::Unit& unit, int version, Stream& stream);
  // Ends an update. Blocks wait for their weights in `enter`, so communication in flight overlaps with the first
  // blocks. Callers that read the weights that this rank owns must call `finish` first.
  void end_update(Stream& stream);
  // Makes `stream` wait for all published weights.
  void finish(Stream& stream);

  // Copies the previous version to version `version`, which is then updated in place. With a single buffer both are the
  // same memory.
  void begin_version(int version, Stream& stream);
  // Ends a plan: its version `version` becomes version 0 of the next plan.
  void restart_at(int version);

  // Sets all weights but quantized ones, which are loaded, to their initial values. These are keyed by global position
  // and so the same on every mesh. Complete on return.
  void initialise(uint64_t seed, Stream& stream);
  // Bytes in memory: all weights; or, with slices in a file, the buffers of gathered units and the slice that is being
  // gathered.
  size_t bytes() const;
  size_t file_bytes() const { return file_.bytes(); }
  bool sharded() const { return options_.sharded; }
  // Whether an address is in the memory of weights that are held whole.
  bool holds(const void* memory) const;
  // Whether an address is in the memory of gathered weights.
  bool gathers(const void* memory) const;
  DType dtype() const { return dtype_; }

 private:
  struct Version final : ParamSource {
    explicit Version(const ParamStore& of) : store(of) {}
    Tensor weight(ParamId id) const override { return views[static_cast<size_t>(id.index)]; }
    Tensor exact(ParamId id) const override { return store.exact_.empty() ? weight(id) : store.exact(id); }
    const ParamStore& store;
    Buffer buffer;
    Tensor flat;  // [trained elements]
    std::vector<Tensor> views;
  };
  // A buffer for the gathered weights of units that are never in memory at the same time.
  struct UnitBuffer {
    Buffer memory;
    int unit = -1;  // the unit gathered in it; -1: none
    Event ready;    // completes when the weights have arrived
    Event spare;    // completes with the last reader
  };

  void make_exact();
  void make_version();
  DType type_of(const FlatLayout::Unit& unit) const { return unit.quantized ? DType::U8 : dtype_; }
  // Elements [begin, end) of the buffer of slices, all quantized or none.
  Tensor shard(int64_t begin, int64_t end) const;
  // Elements [begin, end) of the flat buffers, all trained, frozen or quantized, in a version of whole weights.
  Tensor whole(int64_t begin, int64_t end, int version) const;
  const Version& ring(int version) const;
  const UnitBuffer& buffer_of(int unit) const;
  bool gathered(int unit) const;
  void gather(int index);

  const FlatLayout& layout_;
  const DataGroups& groups_;
  const OpTable& ops_;
  DType dtype_;
  Options options_;
  Stream& comm_stream_;
  Event updated_;  // completes with the last update of the slices
  // By unit: completes when the last published weights have arrived; empty if the readers' stream already waits for it.
  mutable std::vector<Event> arrived_;
  std::vector<std::unique_ptr<Version>> versions_;
  Buffer frozen_, quantized_;  // the frozen weights of all versions
  int first_ = 0;
  // By parameter: the exact values of buffers (ParamSpec::is_buffer) if weights have 16 bits.
  Buffer exact_memory_;
  std::vector<Tensor> exact_;
  Buffer shards_;
  FileMemory file_;  // holds the slices if they are off-loaded
  std::vector<std::pair<int, int>> together_;
  UnitBuffers assignment_;
  std::vector<UnitBuffer> buffers_;
};

}  // namespace trifold
