// Documents that do not attend to each other, on a device: the positions at which they begin are read there. See
// device_test.cpp.
#include <algorithm>

#include "fake_device/runs.h"
#include "run/ranks.h"

namespace trifold::test {
namespace {

// Samples of documents of 1, 2, 3, ... positions.
class Documents final : public DataSource {
 public:
  explicit Documents(const ModelConfig& model) : tokens_(few_tokens(model)) {}
  int64_t seq_length() const override { return tokens_->seq_length(); }
  int64_t samples() const override { return tokens_->samples(); }
  bool separates_documents() const override { return true; }
  void read(Batch& batch, int64_t first) const override {
    tokens_->read(batch, first);
    for (int64_t sample = 0; sample < batch.samples(); ++sample) {
      int32_t* begin_of = batch.document_begin.as<int32_t>() + sample * seq_length();
      int64_t begin = 0;
      for (int64_t length = 1; begin < seq_length(); begin += length++)
        std::fill(begin_of + begin, begin_of + std::min(begin + length, seq_length()),
                  static_cast<int32_t>(begin));
    }
  }

 private:
  std::unique_ptr<DataSource> tokens_;
};

Curve train_on(const PretrainConfig& config, const DataSource& data) {
  Curve curve;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, &data);
    for (int64_t step = 0; step < config.batch.train_iters; ++step) {
      const StepReport report = trainer.step();
      if (world.rank() != 0) continue;
      curve.losses.push_back(report.loss);
      curve.grad_norms.push_back(report.grad_norm);
    }
  });
  return curve;
}

TEST(DeviceDocuments, HaveTheBitsOfTheProcessor) {
  PretrainConfig config = short_run();
  make_llama(config.model, 4);
  config.batch.train_iters = 2;
  config.model.attention_dropout = 0.1;
  const Documents documents(config.model);
  const Curve one = train_on(config, documents);
  EXPECT_NE(one.losses, train(config).losses);
  expect_as_on_host(train_on(on_device(config), documents), one);
  for (const ContextExchange exchange :
       {ContextExchange::AllToAll, ContextExchange::AllGather, ContextExchange::Ring}) {
    SCOPED_TRACE(name_of(exchange));
    PretrainConfig cut = on_mesh(config, 1, 1, 1, 2);
    cut.mesh.cp_comm_type = exchange;
    expect_as_on_host(train_on(on_device(cut), documents), train_on(cut, documents));
  }
}

}  // namespace
}  // namespace trifold::test
