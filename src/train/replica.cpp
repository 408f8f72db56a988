#include "train/replica.h"

#include <algorithm>
#include <set>

#include "comm/meet.h"
#include "layout/zero_sharing.h"
#include "mesh/mesh_sizes.h"
#include "run/device.h"
#include "run/host.h"
#include "run/rank_text.h"

namespace trifold {

namespace {

// Makes context-parallel ranks agree on the threads that compute attention, because they must gather keys in equally
// many pieces (nn/context/gathered_keys.h). A device computes all heads at once.
MeshConfig with_agreed_threads(MeshConfig mesh, Communicator& world, int threads) {
  if (mesh.context_parallel_size > 1) mesh.threads_per_rank = most_on_ranks(world, threads);
  return mesh;
}

}  // namespace

Replica::Replica(Communicator& world, const MeshConfig& mesh, const ModelConfig& model, DType dtype,
                 uint64_t seed, StageRanks stage_ranks, const ZeroConfig& zero,
                 const std::vector<int>& weight_versions, const PrecisionConfig& precision,
                 const OpTable* ops)
    : world_(world),
      mesh_(world, mesh_sizes(mesh)),
      ops_(ops != nullptr ? *ops : ops_of(mesh, world, precision)),
      pool_(mesh.threads_per_rank ? *mesh.threads_per_rank : fair_threads(world)),
      comm_pool_(1),
      side_pool_(1),
      compute_(Stream::Mode::Inline, pool_, ops_.device),
      comm_(comm_mode(world), comm_pool_, ops_.device, QueueUse::Communicating),
      dtype_(dtype),
      cut_(model, with_agreed_threads(mesh, world, ops_.device == nullptr ? pool_.size() : 1), mesh_, seed,
           std::move(stage_ranks)),
      layout_(cut_, mesh_.sizes(), mesh_.coords(), zero,
              zero_sharing(zero, mesh_.sizes(), world.world_nodes())),
      pipeline_(layout_.pipeline()) {
  if (mesh_.size(Axis::Pp) > 1) connect_pipeline();
  if (mesh.cpu_offloading_num_layers > 0) {
    offload_worker_ = std::make_unique<Worker>(comm_mode(world), ops_.device);
    if (ops_.device == nullptr) pipeline_.offload_folder = mesh.cpu_offloading_folder.value();
    pipeline_.offload_stream = &offload_worker_->stream;
  }
  if (mesh.overlap_moe_expert_parallel_comm) {
    exchange_worker_ = std::make_unique<Worker>(comm_mode(world), ops_.device);
    pipeline_.exchange_stream = &exchange_worker_->stream;
  }
  const ZeroSharing& sharing = layout_.zero();
  groups_ = std::make_unique<DataGroups>(mesh_, sharing.group, cut_.model.params);
  ParamStore::Options how;
  if (!weight_versions.empty()) how.versions = weight_versions.at(static_cast<size_t>(mesh_.coord(Axis::Pp)));
  how.sharded = sharing.stage.parameters;
  how.state_on_host = zero.offloads_to_host();
  if (zero.offloads() && !how.state_on_host) how.offload = zero.offload.folder;
  weights_ = std::make_unique<ParamStore>(layout_.flat(), *groups_, ops_, dtype, how, comm_);
  pipeline_.forward_row = with_residency(forward_row_of(pipeline_));
  const bool passes_keys = mesh_.size(Axis::Cp) > 1 && mesh.context_exchange() != ContextExchange::AllToAll;
  const bool experts_travel = ops_.device != nullptr && mesh_.sizes().ranks(kExpertShareAxes) > 1;
  if (experts_travel) meet_experts();
  if ((mesh_.size(Axis::Tp) > 1 || passes_keys || experts_travel) &&
      (ops_.device != nullptr || spare_cores(world, pool_.size()) > 0))
    own_side_.emplace(comm_mode(world), side_pool_, ops_.device, QueueUse::Communicating);
}

// Connects pipeline ranks, with a communicator and a stream for each direction, because forward and backward messages
// must not wait for each other.
void Replica::connect_pipeline() {
  Communicator& axis = mesh_.comm({Axis::Pp});
  backward_ = axis.duplicate(AxisSet{Axis::Pp}.bits() | kGradientsGroup);
  forward_worker_ = std::make_unique<Worker>(comm_mode(world_), ops_.device);
  backward_worker_ = std::make_unique<Worker>(comm_mode(world_), ops_.device);
  pipeline_.forward = &axis;
  pipeline_.backward = backward_.get();
  pipeline_.forward_stream = &forward_worker_->stream;
  pipeline_.backward_stream = &backward_worker_->stream;
  if (ops_.device != nullptr) meet_neighbours();
  connect_ties();
}

// Connects ranks that share a tied weight. The key puts the first stage's rank first, wherever the plan has placed it.
void Replica::connect_ties() {
  Communicator& axis = *pipeline_.forward;
  const int first = pipeline_.rank_of_stage.front();
  std::set<int> others;
  for (const TiedStage& tied : cut_.tied_stages())
    if (tied.of == 0) others.insert(pipeline_.rank_of_stage[static_cast<size_t>(tied.stage)]);
  others.erase(first);
  for (const int other : others) {
    const auto meets = [&](int rank) { return rank == first || rank == other; };
    const auto place_of = [&](int rank) {
      return SplitPlace{meets(rank) ? 1 : 0, rank == first ? 0 : 1 + rank};
    };
    std::unique_ptr<Communicator> pair = axis.split_by(place_of, AxisSet{Axis::Pp}.bits());
    if (meets(axis.rank())) ties_[other] = std::move(pair);
  }
}

Ties Replica::ties() {
  Ties ties;
  const ParamList& params = layout_.params();
  for (int i = 0; i < params.size(); ++i) {
    if (!params[{i}].tied_to) continue;
    const auto found = ties_.find(cut_.rank_of(params[{i}]));
    if (found != ties_.end()) ties[i] = found->second.get();
  }
  return ties;
}

// Connects neighbours in advance. On a device the first message between two ranks may connect them on the host
// (comm/meet.h), and a backward message that blocks there would block the forward messages it depends on.
void Replica::meet_neighbours() {
  const std::vector<int>& ranks = pipeline_.rank_of_stage;
  std::set<int> before, behind;
  for (const Stage& stage : pipeline_.stages) {
    const auto index = static_cast<size_t>(stage.index);
    if (index > 0) before.insert(ranks[index - 1]);
    if (index + 1 < ranks.size()) behind.insert(ranks[index + 1]);
  }
  before.erase(mesh_.coord(Axis::Pp));
  behind.erase(mesh_.coord(Axis::Pp));
  const std::vector<int> from(before.begin(), before.end());
  const std::vector<int> to(behind.begin(), behind.end());
  meet(*pipeline_.forward, to, from, *pipeline_.forward_stream);
  meet(*pipeline_.backward, from, to, *pipeline_.backward_stream);
}

// Connects ranks that share experts in advance, so that a first exchange of rows in mid-run does not block the host.
void Replica::meet_experts() {
  Communicator& comm = mesh_.comm(kExpertShareAxes);
  std::vector<int> others;
  for (int rank = 0; rank < comm.size(); ++rank)
    if (rank != comm.rank()) others.push_back(rank);
  meet(comm, others, others, compute_);
}

std::vector<Stream*> Replica::streams() {
  std::vector<Stream*> streams{&compute_, &side(), &comm_};
  for (Stream* stream : {pipeline_.forward_stream, pipeline_.backward_stream, pipeline_.offload_stream,
                         pipeline_.exchange_stream})
    if (stream != nullptr) streams.push_back(stream);
  return streams;
}

void Replica::reserve_workspace(size_t bytes) {
  if (DeviceQueue* queue = compute_.queue(); queue != nullptr && bytes > 0) queue->workspace(bytes);
}

RankPlan Replica::with_residency(const RankPlan& row) {
  RankPlan mine = layout_.with_residency(row);
  if (weights_->sharded()) weights_->reserve(layout_.gathered_together(mine));
  return mine;
}

std::string Replica::description() const {
  const MeshSizes& sizes = mesh_.sizes();
  const std::string context = sizes[Axis::Cp] > 1 ? fmt::format(" x cp {}", sizes[Axis::Cp]) : "";
  std::string text = fmt::format("dp {}{} x pp {} x tp {}, {} ranks, {} thread{} each", sizes[Axis::Dp],
                                 context, sizes[Axis::Pp], sizes[Axis::Tp], kind_of_ranks(world_), threads(),
                                 threads() == 1 ? "" : "s");
  text += experts_text(sizes);
  const std::span<const int> nodes = world_.world_nodes();
  const int last_node = nodes.empty() ? 0 : *std::max_element(nodes.begin(), nodes.end());
  if (last_node > 0) text += fmt::format(", on {} nodes", last_node + 1);
  const ZeroSharing& zero = layout_.zero();
  if (zero.groups > 1) text += fmt::format(", sharded in {} groups of {}", zero.groups, zero.group);
  return text;
}

}  // namespace trifold
