#include "launch/sampled_model.h"

#include <memory>

#include "models/folders/open_model.h"

namespace trifold::launch {

void with_sampled_model(const std::string& load, const DataConfig& data, std::optional<int> threads,
                        Ranks& ranks, FunctionRef<void(const SampledModel&)> body, bool averages) {
  const CheckpointModel checkpoint = describe_checkpoint(open_model(load));
  expect_text_model(checkpoint);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(checkpoint, data);
  MeshConfig mesh;
  mesh.data_parallel_size = 1;
  mesh.threads_per_rank = threads;
  ranks.run(mesh, [&](Communicator& world) {
    Replica replica(world, mesh, checkpoint.model, checkpoint.dtype, 0);
    load_weights(replica, checkpoint.directory, averages);
    Sampler sampler(replica, checkpoint.model, tokenizer->vocab_size());
    body({checkpoint, *tokenizer, sampler});
  });
}

}  // namespace trifold::launch
