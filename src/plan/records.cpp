#include "plan/records.h"

#include <algorithm>
#include <optional>

#include "config/fields/layer_kinds.h"
#include "core/error.h"
#include "mesh/mesh_sizes.h"
#include "models/language_model.h"
#include "models/model_walk.h"
#include "plan/costs.h"
#include "plan/forecast/block_costs.h"
#include "plan/forecast/device_prices.h"
#include "plan/forecast/hardware_forecast.h"

namespace trifold {

namespace {

bool same_but_times(Work a, Work b) {
  a.times = b.times = 1;
  return a == b;
}

std::vector<Record> recorded(std::span<const Work> list, const WorkPrices& prices) {
  std::vector<Record> records;
  for (const Work& work : list) {
    if (work.kind == Work::Kind::Wait) continue;
    auto known = std::find_if(records.begin(), records.end(),
                              [&](const Record& record) { return same_but_times(record.work, work); });
    if (known == records.end()) known = records.insert(records.end(), {work, 0, 0});
    known->times += work.times;
    known->seconds += work.times * prices.seconds(work);
  }
  return records;
}

std::string name_of_block(const Block& block, const LayerKinds& layers) {
  return block.kind == BlockKind::Layer ? layers.kinds[block.layer_kind].name : name_of(block.kind);
}

}  // namespace

std::vector<RecordedBlock> recorded_work(const RunSpec& planned, const PlannedMachine& machine) {
  if (!machine.costs_file.empty())
    bad_input("--records has no effect with --costs {}, whose times are of whole blocks: leave one out",
              machine.costs_file);
  RunSpec run = planned;
  FusedOps fused = FusedOps::None;
  if (machine.hardware) {
    fused = fused_ops(*machine.hardware, machine.software, run);
    if (fused != FusedOps::None) run.mesh.device = ComputeDevice::Cuda;
  }
  const std::unique_ptr<WorkPrices> prices =
      machine.hardware ? device_prices(*machine.hardware, machine.software, run) : rate_prices(machine);
  const Mesh mesh(mesh_sizes(run.mesh), {});
  const Model model = make_model(run.model, mesh, run.seed, run.mesh);
  const WalkedModel work = walk_run(run, model, machine.expert_load, fused);
  std::vector<RecordedBlock> result;
  const LayerKinds layers = layer_kinds(run.model);
  std::vector<const WalkedBlock*> known;
  for (size_t index = 0; index < model.blocks.size(); ++index) {
    const WalkedBlock& block = work.of_block(index);
    const auto like = std::find(known.begin(), known.end(), &block);
    if (like != known.end()) {
      ++result[static_cast<size_t>(like - known.begin())].blocks;
      continue;
    }
    known.push_back(&block);
    result.push_back({name_of_block(model.blocks[index], layers), 1, recorded(block.forward, *prices),
                      recorded(block.input, *prices), recorded(block.weight, *prices)});
  }
  return result;
}

}  // namespace trifold
