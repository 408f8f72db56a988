#include "nccl_order/over_nccl.h"

#include <algorithm>

#include "comm/cuda_module.h"
#include "fake_device/runs.h"
#include "nccl_order/check.h"
#include "nccl_order/recorded_host.h"
#include "run/nodes.h"

namespace trifold::test {

namespace {

const RecordPort& record_port() {
  static const RecordPort kPort = {
      fake_device_function<int(const std::string*, const std::vector<int>*)>("nccl_order_comm"),
      fake_device_function<void(int, const OrderEntry*)>("nccl_order_add")};
  return kPort;
}

bool is_over_nccl(const MeshConfig& mesh) { return mesh.device == ComputeDevice::Cuda && mesh.ranks > 1; }

}  // namespace

void start_over_nccl(const MeshConfig& mesh, FunctionRef<void(Communicator&)> rank_main) {
  if (!is_over_nccl(mesh)) return run_on_ranks(mesh, rank_main);
  check(mesh.ranks <= cuda_device_count(), "{} ranks on {} devices", mesh.ranks, cuda_device_count());
  fake_device_function<void(int)>("nccl_order_begin")(mesh.ranks);
  MeshConfig of_host = mesh;
  of_host.device = ComputeDevice::Cpu;
  run_on_ranks(of_host, [&](Communicator& world) {
    const std::unique_ptr<Communicator> host = recorded_host(world, record_port());
    const std::unique_ptr<Communicator> devices = connect_nccl(*host, host->rank(), timeout_of(mesh));
    devices->set_nodes(nodes_of_ranks(*devices, mesh.ranks_per_node));
    rank_main(*devices);
  });
}

OrderRecord take_record() {
  OrderRecord record;
  fake_device_function<void(OrderRecord*)>("nccl_order_take")(&record);
  return record;
}

OrderRecord expect_ordered(int ranks) {
  OrderRecord record = take_record();
  EXPECT_EQ(record.ranks.size(), static_cast<size_t>(ranks));
  for (const auto& entries : record.ranks)
    EXPECT_TRUE(std::any_of(entries.begin(), entries.end(), [](const OrderEntry& entry) {
      return entry.kind == OrderEntry::Kind::Collective || entry.kind == OrderEntry::Kind::Messages;
    })) << "a rank called nothing of NCCL's";
  for (const std::string& problem : order_problems(record, Blocking::EveryCollective))
    ADD_FAILURE() << problem;
  return record;
}

void start_and_check_order(const MeshConfig& mesh, FunctionRef<void(Communicator&)> rank_main) {
  start_over_nccl(mesh, rank_main);
  if (is_over_nccl(mesh)) expect_ordered(mesh.ranks);
}

}  // namespace trifold::test
