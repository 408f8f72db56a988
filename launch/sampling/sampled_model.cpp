#include "launch/sampling/sampled_model.h"

#include <fmt/core.h>

#include <memory>

#include "core/bytes_text.h"
#include "core/error.h"
#include "models/folders/open_model.h"

namespace trifold::launch {

namespace {

constexpr double kLongestTimeout = 525'600;  // minutes

void expect_parts(const CheckpointModel& from, const MeshConfig& mesh) {
  if (from.model.num_experts)
    bad_input(
        "--tensor-model-parallel-size {}: {} has experts, with which a text is continued on one rank only: "
        "leave the option out",
        mesh.tensor_model_parallel_size, from.directory);
  expect_layout(from, mesh, 1);
}

}  // namespace

void with_sampled_model(const std::string& load, const DataConfig& data, const SampledPlace& place,
                        Ranks& ranks, FunctionRef<void(const SampledModel&)> body) {
  CheckpointModel checkpoint = describe_checkpoint(open_model(load));
  checkpoint.dtype = place.dtype.value_or(checkpoint.dtype);
  expect_text_model(checkpoint);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(checkpoint, data);
  MeshConfig mesh;
  mesh.ranks = mesh.tensor_model_parallel_size = place.tensor_ranks;
  mesh.data_parallel_size = 1;
  mesh.threads_per_rank = place.threads;
  if (place.tensor_ranks > 1) {
    mesh.distributed_timeout_minutes =
        kLongestTimeout;  // ranks that follow wait for as long as a user thinks
    expect_parts(checkpoint, mesh);
  }
  ranks.run(mesh, [&](Communicator& world) {
    Replica replica(world, mesh, checkpoint.model, checkpoint.dtype, 0);
    load_weights(replica, checkpoint.directory, place.averages);
    Sampler sampler(replica, checkpoint.model, tokenizer->vocab_size(), place.caching);
    if (world.rank() > 0) return sampler.follow();
    body({checkpoint, *tokenizer, sampler});
    sampler.dismiss();
  });
}

std::string cache_line(const Sampler& sampler) {
  if (sampler.cache_bytes() > 0)
    return fmt::format("{} of keys and values for {} tokens", bytes_text(sampler.cache_bytes()),
                       sampler.window());
  if (sampler.obstacle().empty()) return "no keys and values are kept: every token computes the whole text";
  return fmt::format("no keys and values are kept, because of {}: every token computes the whole text",
                     sampler.obstacle());
}

}  // namespace trifold::launch
