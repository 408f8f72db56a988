// ParamStore: the weights of a rank in flat buffers (FlatLayout); layers see views. They are resident whole,
// or (ZeRO stage 3) this rank has its slice of each unit only, and a unit's weights are gathered from the
// sharding group before its blocks need them and given up afterwards, as the plan says.
//
// Asynchronous schedules need several versions of the weights at once (weight stashing; Narayanan et al.,
// "PipeDream", SOSP 2019). They live in a ring: version v of the running plan is in buffer (first + v) mod
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

// Elements of a segment that lies in a file that are in memory at a time: what an update streams through.
constexpr int64_t kOffloadWindow = int64_t{1} << 20;
static_assert(kOffloadWindow % kGrain == 0);

// Elements [begin, end) of a segment.
FlatLayout::Segment part_of(const FlatLayout::Segment& segment, int64_t begin, int64_t end);

// Writes the initial values of a segment of a parameter into `values`, [segment.count], where the tensors of
// `ops` live; done when it returns. A copy of a tied weight starts like its original.
void initialise_segment(const FlatLayout& layout, const FlatLayout::Segment& segment, Tensor values,
                        uint64_t seed, const OpTable& ops, Stream& stream);

// Where the gathered weights of units lie, given those that are gathered at one time.
SharedPlaces places_of_units(const FlatLayout& layout, std::span<const std::pair<int, int>> together);

class ParamStore final : public ParamSource {
 public:
  struct Options {
    int versions = 1;      // of the weights; 1 where they are sharded
    bool sharded = false;  // hold slices only
    // Folder of the file that the slices lie in, and the optimizer's state as well; empty: in memory.
    std::string offload = {};
    // The optimizer's state is in the host's memory, where the device reads and writes it as it updates.
    bool state_on_host = false;
  };

  // `comm_stream` carries what gathers and publishes. References must outlive the store. Weights start at
  // zero.
  ParamStore(const FlatLayout& layout, const DataGroups& groups, const OpTable& ops, DType dtype,
             const Options& options, Stream& comm_stream);
  // Waits for what is on its way: it uses this memory.
  ~ParamStore() override;
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  // Makes memory for plans that gather these units at one time, beside what was asked for before, where the
  // weights are sharded. Between plans.
  void reserve(const std::vector<std::pair<int, int>>& together);

  // Of version 0: between plans, the newest there are, which are waited for where they are on their way.
  // Where sharded, an Error unless the unit is gathered.
  Tensor weight(ParamId id) const override;
  const ParamSource& at_version(int version) const override;
  void unshard(int block, Stream& stream) override;
  void reshard(int block, Stream& stream) override;
  void enter(int block, Stream& stream) const override;

  // The elements of a segment of the layout that this rank owns, of version `version`; to be read or updated
  // in place.
  Tensor owned(const FlatLayout::Segment& segment, int version = 0) const;
  // Of a segment that this rank owns: it is needed soon, or not for a while. For slices that lie in a file.
  void expect(const FlatLayout::Segment& segment) const;
  void release(const FlatLayout::Segment& segment) const;
  // See How.
  const std::string& offload() const { return options_.offload; }
  bool state_on_host() const { return options_.state_on_host; }
  // After the owners have updated their slices: brings the unit's whole weights to all ranks that hold them
  // whole. Starts it and returns. Nothing to do where the weights are sharded.
  void publish(const FlatLayout::Unit& unit, int version, Stream& stream);
  // After all of an update: blocks wait for their weights when they are entered, so what is still on its way
  // arrives behind the first of them. Whoever reads what this rank owns of them calls `finish` first.
  void end_update(Stream& stream);
  // `stream` waits for all that was published.
  void finish(Stream& stream);

  // Makes version `version` a copy of the one before it, to be updated in place. With one buffer they are the
  // same already.
  void begin_version(int version, Stream& stream);
  // The plan is over: what was `version` is version 0 of the next.
  void restart_at(int version);

  // Sets every weight to its initial value; keyed by global position, so every mesh starts from the same
  // model. Done when it returns.
  void initialise(uint64_t seed, Stream& stream);
  // In memory: all, or with slices in a file what is gathered and the slice that it is gathered from.
  size_t bytes() const;
  size_t file_bytes() const { return file_.bytes(); }
  bool sharded() const { return options_.sharded; }
  DType dtype() const { return dtype_; }

 private:
  struct Version final : ParamSource {
    Tensor weight(ParamId id) const override { return views[static_cast<size_t>(id.index)]; }
    Buffer buffer;
    Tensor flat;
    std::vector<Tensor> views;
  };
  // Memory for the gathered weights of units that are never there together.
  struct Place {
    Buffer buffer;
    int unit = -1;
    Event ready;  // the weights are there
    Event spare;  // nobody reads them any more
  };

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
  Event updated_;  // the shards are what the last update made them
  // By unit: when what was published last is there; complete where the readers' stream waits for it already.
  mutable std::vector<Event> arrived_;
  std::vector<std::unique_ptr<Version>> versions_;
  int first_ = 0;
  Buffer shards_;
  FileMemory file_;  // the slices, instead
  std::vector<std::pair<int, int>> together_;
  SharedPlaces shared_;
  std::vector<Place> places_;
};

}  // namespace trifold
