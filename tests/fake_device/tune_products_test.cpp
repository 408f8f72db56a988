// --tune-products on a device with equivalent algorithms for each product: what is measured, kept and reused.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fake_device/runs.h"
#include "run/ranks.h"
#include "train/tune_products.h"

namespace trifold::test {
namespace {

namespace fs = std::filesystem;

int64_t measured() { return fake_device_function<int64_t()>("fake_device_products_measured")(); }

class TuneProducts : public ::testing::Test {
 protected:
  TuneProducts() : file_(fs::temp_directory_path() / fmt::format("trifold_products_{}.json", getpid())) {
    fs::remove(file_);
  }
  ~TuneProducts() override {
    fs::remove(file_);
    unsetenv("TRIFOLD_FAKE_DEVICE_LIBRARY");
  }

  // Returns how many products a run measured; `note` receives the message of rank 0.
  int64_t run(PretrainConfig config, Curve& curve, std::string& note) {
    config.mesh.device = ComputeDevice::Cuda;
    config.mesh.tune_products = file_;
    const std::unique_ptr<DataSource> data = few_tokens(config.model);
    const int64_t before = measured();
    curve = {};
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, *data, nullptr);
      if (world.rank() == 0) note = trainer.product_note();
      for (int i = 0; i < 3; ++i) {
        const StepReport step = trainer.step();
        if (world.rank() == 0) curve.losses.push_back(step.loss);
      }
    });
    return measured() - before;
  }
  std::string content() const {
    std::ifstream in(file_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& text) const { std::ofstream(file_) << text; }

  std::string file_;
};

TEST_F(TuneProducts, AreMeasuredOnceForAllRanksAndRuns) {
  if (!is_fake_device()) GTEST_SKIP() << "only the fake device counts what it measures";
  for (const bool graphs : {false, true})
    for (const PretrainConfig& each : {short_run(), on_mesh(short_run(), 2), on_mesh(short_run(), 1, 1, 2)}) {
      PretrainConfig config = each;
      config.mesh.enable_cuda_graph = graphs;
      fs::remove(file_);
      Curve plain, first, again;
      std::string note;
      plain = train(test::on_device(config), 3);
      const int64_t count = run(config, first, note);
      EXPECT_GT(count, 5);
      EXPECT_NE(note.find(fmt::format("{} products were measured", count)), std::string::npos) << note;
      const ProductTable kept = parse_products(content(), file_);
      EXPECT_EQ(kept.choices.size(), static_cast<size_t>(count));
      EXPECT_EQ(run(config, again, note), 0) << "the file has them all";
      EXPECT_EQ(note, "");
      EXPECT_EQ(parse_products(content(), file_).choices, kept.choices);
      EXPECT_EQ(first.losses, plain.losses) << "all ways of this device are the same";
      EXPECT_EQ(again.losses, plain.losses);
    }
}

TEST_F(TuneProducts, OfAnotherLibraryAreMeasuredAgain) {
  if (!is_fake_device()) GTEST_SKIP() << "only the fake device has another library";
  Curve curve;
  std::string note;
  const int64_t count = run(on_mesh(short_run(), 2), curve, note);
  setenv("TRIFOLD_FAKE_DEVICE_LIBRARY", "2", 1);
  EXPECT_EQ(run(on_mesh(short_run(), 2), curve, note), count);
  EXPECT_NE(note.find("was made for fake device, library 1, and this is fake device, library 2"),
            std::string::npos)
      << note;
  EXPECT_EQ(parse_products(content(), file_).made_for, "fake device, library 2");
}

TEST_F(TuneProducts, ADamagedFileIsRefusedAndLeftAsItIs) {
  if (!is_fake_device()) GTEST_SKIP() << "looks at files alone: checked on the fake device";
  Curve curve;
  std::string note;
  run(short_run(), curve, note);
  std::string damaged = content();
  const size_t at = damaged.find("way ");
  ASSERT_NE(at, std::string::npos);
  damaged[at + 4] = damaged[at + 4] == '1' ? '2' : '1';
  for (const std::string& text : {damaged, std::string("my notes\n"), std::string("{}"), std::string()}) {
    write(text);
    for (const PretrainConfig& config : {short_run(), on_mesh(short_run(), 2)}) {
      try {
        run(config, curve, note);
        ADD_FAILURE() << "taken: " << text;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_NE(std::string(error.what()).find(file_), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("remove this one"), std::string::npos) << error.what();
      }
      EXPECT_EQ(content(), text);
    }
  }
}

}  // namespace
}  // namespace trifold::test
