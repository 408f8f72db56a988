// ParamStore: the weights of a rank in flat buffers (FlatLayout); layers see views. Either they are resident
// as a whole, or (ZeRO stage 3) this rank holds only its slice of each unit, and a unit's weights are
// gathered from the sharding group before its blocks need them and released afterwards, as the plan says.
//
// Asynchronous schedules need several versions of the weights at once (weight stashing; Narayanan et al.,
// "PipeDream", SOSP 2019). They are in a ring: version v of the running plan is in buffer (first + v) mod
// count, where `count` is the most that a plan needs at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data_parallel/data_groups.h"
#include "data_parallel/flat_layout.h"
#include "data_parallel/shared_places.h"
#include "files/file_memory.h"
#include "nn/param.h"
#include "ops/ops.h"

namespace trifold {

// Elements of a segment in a file that are in memory at a time: the window through which an update streams.
constexpr int64_t kOffloadWindow = int64_t{1} << 20;
static_assert(kOffloadWindow % kGrain == 0);

// Elements [begin, end) of a segment.
FlatLayout::Segment part_of(const FlatLayout::Segment& segment, int64_t begin, int64_t end);

// Writes the initial values of a segment of a parameter into `values`, [segment.count], on the device of
// `ops`; complete on return. A copy of a tied weight gets the values of its original.
void initialise_segment(const FlatLayout& layout, const FlatLayout::Segment& segment, Tensor values,
                        uint64_t seed, const OpTable& ops, Stream& stream);

// The places of the gathered weights of units, given the pairs of units that are gathered at the same time.
SharedPlaces places_of_units(const FlatLayout& layout, std::span<const std::pair<int, int>> together);

class ParamStore final : public ParamSource {
 public:
  struct Options {
    int versions = 1;      // of the weights; must be 1 if they are sharded
    bool sharded = false;  // hold slices only
    // Folder of the file for the slices and the optimizer's state; empty: they are in memory.
    std::string offload = {};
    // The optimizer's state is in host memory, which the device reads and writes during the update.
    bool state_on_host = false;
  };

  // Gathers and publications run on `comm_stream`. References must outlive the store. Weights start at zero.
  ParamStore(const FlatLayout& layout, const DataGroups& groups, const OpTable& ops, DType dtype,
             const Options& options, Stream& comm_stream);
  // Waits for communication in flight: it uses this memory.
  ~ParamStore() override;
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  // If the weights are sharded: makes memory for plans that gather these pairs of units at the same time, in
  // addition to earlier calls. To be called between plans.
  void reserve(const std::vector<std::pair<int, int>>& together);

  // The weight in version 0: between plans, the newest; waits for communication in flight. If sharded, an
  // Error unless the unit is gathered.
  Tensor weight(ParamId id) const override;
  // Memory of its own where weights have 16 bits; all ranks must write the same there.
  Tensor exact(ParamId id) const override;
  const ParamSource& at_version(int version) const override;
  void unshard(int block, Stream& stream) override;
  void reshard(int block, Stream& stream) override;
  void enter(int block, Stream& stream) const override;

  // The elements of a segment of the layout that this rank owns, in version `version`; to be read or updated
  // in place.
  Tensor owned(const FlatLayout::Segment& segment, int version = 0) const;
  // For an owned segment in a file: it is needed soon (expect), or not for a while (release).
  void expect(const FlatLayout::Segment& segment) const;
  void release(const FlatLayout::Segment& segment) const;
  // See Options.
  const std::string& offload() const { return options_.offload; }
  bool state_on_host() const { return options_.state_on_host; }
  // To be called after the owners have updated their slices: sends the unit's weights to all ranks that hold
  // them whole. Returns without waiting. No effect if the weights are sharded.
  void publish(const FlatLayout::Unit& unit, int version, Stream& stream);
  // Ends an update. Blocks wait for their weights when they are entered, so communication in flight overlaps
  // with the first blocks. Callers that read the weights this rank owns must call `finish` first.
  void end_update(Stream& stream);
  // Makes `stream` wait for everything published.
  void finish(Stream& stream);

  // Makes version `version` a copy of the previous one, to be updated in place. With one buffer they are the
  // same memory.
  void begin_version(int version, Stream& stream);
  // Ends a plan: its version `version` becomes version 0 of the next.
  void restart_at(int version);

  // Sets every weight to its initial value, keyed by global position, so that every mesh starts from the same
  // model. Complete on return.
  void initialise(uint64_t seed, Stream& stream);
  // Bytes in memory: everything; or, with slices in a file, the gathered units and the slice that is being
  // gathered.
  size_t bytes() const;
  size_t file_bytes() const { return file_.bytes(); }
  bool sharded() const { return options_.sharded; }
  DType dtype() const { return dtype_; }

 private:
  struct Version final : ParamSource {
    explicit Version(const ParamStore& of) : store(of) {}
    Tensor weight(ParamId id) const override { return views[static_cast<size_t>(id.index)]; }
    Tensor exact(ParamId id) const override { return store.exact_.empty() ? weight(id) : store.exact(id); }
    const ParamStore& store;
    Buffer buffer;
    Tensor flat;
    std::vector<Tensor> views;
  };
  // Memory for the gathered weights of units that are never in memory at the same time.
  struct Place {
    Buffer buffer;
    int unit = -1;
    Event ready;  // the weights have arrived
    Event spare;  // the last reader is done
  };

  void make_exact();
  Tensor shards() const;
  const Version& ring(int version) const;
  const Place& place_of(int unit) const;
  bool gathered(int unit) const;
  void gather(int index);

  const FlatLayout& layout_;
  const DataGroups& groups_;
  const OpTable& ops_;
  DType dtype_;
  Options options_;
  Stream& comm_stream_;
  Event updated_;  // the last update of the shards is complete
  // By unit: the arrival of the last publication; complete if the readers' stream already waits for it.
  mutable std::vector<Event> arrived_;
  std::vector<std::unique_ptr<Version>> versions_;
  int first_ = 0;
  // By parameter, for those that are counted, if weights have 16 bits; else there are none.
  Buffer exact_memory_;
  std::vector<Tensor> exact_;
  Buffer shards_;
  FileMemory file_;  // holds the slices instead
  std::vector<std::pair<int, int>> together_;
  SharedPlaces shared_;
  std::vector<Place> places_;
};

}  // namespace trifold
