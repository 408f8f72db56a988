// DLRM against results of other programs: the debug run printed with the reference implementation, and ten steps of
// small models in PyTorch. And its gradients against finite differences.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/thread_comm.h"
#include "parity/recommender_bench.h"
#include "support/test_data.h"

namespace trifold::test {
namespace {

using Json = nlohmann::json;

Json load_golden(const std::string& name) {
  std::ifstream file(test_data() + "/golden/" + name);
  return Json::parse(file);
}

std::vector<double> flattened(const Json& value) {
  if (!value.is_array()) return {value.get<double>()};
  std::vector<double> all;
  for (const Json& part : value) {
    const std::vector<double> more = flattened(part);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

void expect_near(const Values& got, const Values& expected, double tolerance) {
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(got.count(name)) << name;
    ASSERT_EQ(got.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(got.at(name)[i], values[i], tolerance) << name << " element " << i;
  }
}

Values debug_parameters(const Json& all) {
  Values values;
  for (size_t t = 0; t < all.at("tables").size(); ++t)
    values[fmt::format("param/embedding.{}.weight", t)] = flattened(all.at("tables")[t]);
  for (const char* part : {"bottom", "top"})
    for (size_t i = 0; i < all.at(std::string(part) + "_bias").size(); ++i) {
      values[fmt::format("param/{}.{}.weight", part, i)] =
          flattened(all.at(std::string(part) + "_weights")[i]);
      values[fmt::format("param/{}.{}.bias", part, i)] = flattened(all.at(std::string(part) + "_bias")[i]);
    }
  return values;
}

TEST(RecommenderGolden, TheReferencesPrintedDebugRun) {
  const Json golden = load_golden("dlrm_debug.json");
  RecommenderSetup setup;
  setup.model = {.dense = 4, .tables = 3, .width = 2, .bottom = {3, 2}, .top = {4, 2, 1}};
  setup.schema.dense = 4;
  setup.schema.tables = {{"0", 4, 3}, {"1", 3, 3}, {"2", 2, 3}};
  setup.placement.resize(3);
  setup.global_batch = 2;
  setup.dense_optimizer.optimizer = OptimizerKind::Sgd;
  setup.dense_optimizer.sgd_momentum = 0;
  setup.dense_optimizer.weight_decay = 0;
  setup.model.loss = ClickLoss::Squared;
  setup.threads = 1;
  for (const DType dtype : {DType::F64, DType::F32}) {
    setup.dtype = dtype;
    ThreadWorld world(1);
    const auto comm = world.join(0);
    Recommender model(*comm, setup);
    assign(model, debug_parameters(golden.at("initial")));
    const double lr = golden.at("lr");
    for (size_t step = 0; step < 3; ++step) {
      const Json& batch = golden.at("batches")[step];
      Clicks clicks;
      for (size_t s = 0; s < 2; ++s) {
        clicks.dense.push_back(batch.at("dense")[s].get<std::vector<float>>());
        clicks.labels.push_back(batch.at("targets")[s]);
        clicks.ids.emplace_back();
        for (size_t t = 0; t < 3; ++t)
          clicks.ids.back().push_back(batch.at("indices")[t][s].get<std::vector<int32_t>>());
      }
      model.fetch([&](ClickBatchBuffer& out) { clicks.read(0, 2, out); });
      const double loss = model.train(2, static_cast<int64_t>(step) + 1, lr, lr, {});
      EXPECT_NEAR(loss, golden.at("printed_losses")[step], 5e-6) << "step " << step;
      EXPECT_NEAR(loss, golden.at("losses")[step], 1e-6) << "step " << step;
    }
    Values final_values;
    collect(model, final_values);
    expect_near(final_values, debug_parameters(golden.at("final")), 1e-6);
  }
}

// The value of the formula in the golden file.
double initial_value(uint32_t tensor, uint32_t i, double scale) {
  uint32_t h = i + 65536 * tensor;
  h += 0x9e3779b9U;
  h = (h ^ (h >> 16)) * 0x85ebca6bU;
  h = (h ^ (h >> 13)) * 0xc2b2ae35U;
  h ^= h >> 16;
  return scale * ((h >> 16) / 65536.0 - 0.5);
}

RecommenderSetup torch_setup(const Json& config) {
  RecommenderSetup setup;
  setup.model.dense = config.at("dense");
  setup.model.width = config.at("embedding_dim");
  setup.model.bottom = config.at("bottom").get<std::vector<int64_t>>();
  setup.model.top = config.at("top").get<std::vector<int64_t>>();
  setup.model.interaction = value_named<InteractionKind>(config.at("interaction").get<std::string>()).value();
  setup.model.wide = config.value("wide", false);
  setup.model.self = config.at("self_interaction");
  for (int l = 0; l < config.value("labels", 1) && config.contains("labels"); ++l)
    setup.model.labels.push_back(fmt::format("y{}", l));
  setup.schema.labels = setup.model.labels;
  setup.schema.label_weights = config.value("label_weights", std::vector<float>{});
  setup.model.tower = config.value("tower", std::vector<int64_t>{});
  setup.model.experts = config.value("experts", 0);
  setup.model.cross_layers = config.value("cross_layers", 0);
  setup.model.cross_rank = config.value("cross_rank", 0);
  setup.schema.dense = config.at("dense");
  const auto rows = config.at("rows").get<std::vector<int64_t>>();
  for (size_t t = 0; t < rows.size(); ++t)
    setup.schema.tables.push_back({std::to_string(t), rows[t], config.at("max_ids")[t]});
  setup.model.tables = static_cast<int64_t>(rows.size());
  const Json shares = config.value("shares", Json::object());
  for (const auto& [column, owner] : shares.items())
    setup.schema.tables[std::stoul(column)].shares = std::to_string(owner.get<int>());
  for (const Json& pair : config.value("attended", Json::array()))
    setup.model.attended.push_back({pair[0], pair[1], std::to_string(pair[0].get<int>())});
  setup.model.attention = config.value("attention", std::vector<int64_t>{});
  setup.model.batch_norm = config.value("batch_norm", false);
  setup.place_vectors();
  setup.placement.resize(rows.size() - shares.size());
  setup.global_batch = config.at("batch");
  setup.mean = config.at("pooling") == "mean";
  setup.dense_optimizer.optimizer =
      value_named<OptimizerKind>(config.at("optimizer").get<std::string>()).value();
  setup.dense_optimizer.sgd_momentum = 0;
  setup.dense_optimizer.weight_decay = config.value("weight_decay", 0.0);
  setup.dense_optimizer.adagrad_eps = config.at("eps");
  setup.sparse.kind = config.at("optimizer") == "sgd" ? SparseKind::Sgd : SparseKind::Adagrad;
  setup.sparse.eps = config.at("eps");
  setup.sparse.weight_decay = config.value("tables_decay", 0.0);
  if (const auto ftrl = config.value("ftrl", std::vector<double>{}); !ftrl.empty()) {
    setup.sparse.kind = SparseKind::Ftrl;
    setup.sparse.alpha = ftrl[0];
    setup.sparse.beta = ftrl[1];
    setup.sparse.l1 = ftrl[2];
    setup.sparse.l2 = ftrl[3];
  }
  setup.threads = 1;
  return setup;
}

Clicks torch_batch(const Json& batch, const RecommenderSetup& setup) {
  Clicks clicks;
  clicks.label_count = setup.schema.label_count();
  for (const float label : batch.at("labels").get<std::vector<float>>())
    clicks.labels.push_back(label < 0 ? NAN : label);
  std::vector<size_t> next(setup.schema.tables.size(), 0);
  for (size_t s = 0; s < static_cast<size_t>(setup.global_batch); ++s) {
    clicks.dense.emplace_back();
    for (int64_t d = 0; d < setup.model.dense; ++d)
      clicks.dense.back().push_back(
          batch.at("dense")[s * static_cast<size_t>(setup.model.dense) + static_cast<size_t>(d)]);
    clicks.ids.emplace_back();
    for (size_t t = 0; t < next.size(); ++t) {
      clicks.ids.back().emplace_back();
      for (int n = batch.at("lengths")[t][s]; n > 0; --n)
        clicks.ids.back().back().push_back(batch.at("ids")[t][next[t]++]);
    }
  }
  return clicks;
}

TEST(RecommenderGolden, TenStepsOfPyTorch) {
  const Json golden = load_golden("dlrm_torch.json");
  for (const auto& [name, run] : golden.at("cases").items()) {
    for (const DType dtype : {DType::F64, DType::F32}) {
      SCOPED_TRACE(fmt::format("{} {}", name, name_of(dtype)));
      RecommenderSetup setup = torch_setup(run.at("config"));
      setup.dtype = dtype;
      ThreadWorld world(1);
      const auto comm = world.join(0);
      Recommender model(*comm, setup);
      Values initial, after;
      uint32_t place = 0;
      for (const Json& parameter : run.at("parameters")) {
        std::string key = "param/" + parameter.at("name").get<std::string>();
        if (key.rfind("param/tables.", 0) == 0) key = "param/embedding." + key.substr(13) + ".weight";
        after[key] = parameter.at("after").get<std::vector<double>>();
        for (uint32_t i = 0; i < after[key].size(); ++i)
          initial[key].push_back(initial_value(place, i, parameter.at("scale")));
        ++place;
      }
      const Json statistics = run.value("statistics", Json::object());
      for (const auto& [norm, values] : statistics.items()) {
        after["norm_mean/" + norm] = values.at(0).get<std::vector<double>>();
        after["norm_variance/" + norm] = values.at(1).get<std::vector<double>>();
      }
      assign(model, initial);
      const double lr = run.at("config").at("lr");
      for (size_t step = 0; step < 10; ++step) {
        const Clicks clicks = torch_batch(run.at("batches")[step], setup);
        model.fetch([&](ClickBatchBuffer& out) { clicks.read(0, setup.global_batch, out); });
        const double loss = model.train(setup.global_batch, static_cast<int64_t>(step) + 1, lr, lr, {});
        EXPECT_NEAR(loss, run.at("losses")[step], dtype == DType::F64 ? 1e-7 : 1e-5) << "step " << step;
      }
      Values final_values;
      collect(model, final_values);
      expect_near(final_values, after, dtype == DType::F64 ? 1e-6 : 2e-5);
    }
  }
}

// One step of plain descent moves every parameter by lr times its gradient: that is compared with differences
// of the loss, through the whole model, for every interaction, pooling and loss.
struct Shape4 {
  InteractionKind kind;
  bool self, mean, weighted;
  ClickLoss loss;
  int dense = 3;
  bool wide = false;
  // Of several labels: how many, and how many experts they mix.
  int labels = 1;
  int experts = 0;
  bool attends = false;  // the bags of a table of its own, and of one that it shares
  bool batch_norm = false;
};

void give_labels(RecommenderSetup& setup, int labels, int experts) {
  if (labels == 1) return;
  for (int l = 0; l < labels; ++l) setup.model.labels.push_back(fmt::format("y{}", l));
  setup.schema.labels = setup.model.labels;
  setup.model.tower = {4, 1};
  setup.model.experts = experts;
}

TEST(RecommenderGradient, EveryParameterByFiniteDifferences) {
  for (const Shape4& shape :
       {Shape4{InteractionKind::Dot, false, false, false, ClickLoss::Logistic},
        Shape4{InteractionKind::Dot, true, true, true, ClickLoss::Squared},
        Shape4{InteractionKind::Cat, false, false, true, ClickLoss::Logistic},
        Shape4{InteractionKind::Cross, false, true, false, ClickLoss::Logistic},
        Shape4{InteractionKind::Dot, true, false, false, ClickLoss::Logistic, 0},
        Shape4{InteractionKind::Cat, false, true, true, ClickLoss::Logistic, 0},
        Shape4{InteractionKind::Cross, false, false, false, ClickLoss::Logistic, 0},
        Shape4{InteractionKind::Fm, false, false, true, ClickLoss::Logistic},
        Shape4{InteractionKind::Fm, false, true, true, ClickLoss::Squared, 3, true},
        Shape4{InteractionKind::Fm, false, false, false, ClickLoss::Logistic, 0, true},
        Shape4{InteractionKind::Cat, false, true, false, ClickLoss::Logistic, 3, true},
        Shape4{InteractionKind::Dot, true, false, true, ClickLoss::Logistic, 0, true},
        Shape4{InteractionKind::Cross, false, false, false, ClickLoss::Squared, 3, true},
        Shape4{InteractionKind::Dot, false, false, true, ClickLoss::Logistic, 3, false, 2},
        Shape4{InteractionKind::Fm, false, true, false, ClickLoss::Logistic, 3, true, 3},
        Shape4{InteractionKind::Cat, false, false, false, ClickLoss::Logistic, 3, true, 2, 3},
        Shape4{InteractionKind::Cross, false, false, false, ClickLoss::Logistic, 0, true, 3, 2},
        Shape4{InteractionKind::Dot, false, false, false, ClickLoss::Logistic, 3, false, 1, 0, true},
        Shape4{InteractionKind::Cat, false, true, true, ClickLoss::Logistic, 0, true, 2, 0, true},
        Shape4{InteractionKind::Dot, false, false, false, ClickLoss::Logistic, 3, false, 1, 0, false,
               true}}) {
    RecommenderSetup setup;
    setup.model = {.dense = shape.dense, .tables = 2, .width = 3, .bottom = {6, 3}, .top = {9, 1}};
    setup.model.interaction = shape.kind;
    setup.model.self = shape.self;
    setup.model.wide = shape.wide;
    setup.model.cross_layers = 2;
    setup.model.cross_rank = 2;
    give_labels(setup, shape.labels, shape.experts);
    if (shape.labels > 1) setup.schema.label_weights = {1, 0.5F, 2};
    setup.schema.label_weights.resize(shape.labels > 1 ? static_cast<size_t>(shape.labels) : 0);
    setup.schema.dense = shape.dense;
    setup.schema.weighted = shape.weighted;
    setup.schema.tables = {{"a", 5, 3}, {"b", 3, 2}};
    setup.placement.resize(2);
    setup.model.batch_norm = shape.batch_norm;
    if (shape.attends) {
      setup.schema.tables.push_back({"c", 5, 3, "", {}, "a"});
      setup.model.tables = 3;
      setup.model.attended = {{1, 0, "b"}, {2, 0, "c"}};
      setup.model.attention = {4, 1};
      setup.place_vectors();
    }
    setup.global_batch = 5;
    setup.dense_optimizer.optimizer = OptimizerKind::Sgd;
    setup.dense_optimizer.sgd_momentum = 0;
    setup.dense_optimizer.weight_decay = 0;
    setup.model.loss = shape.loss;
    setup.mean = shape.mean;
    setup.dtype = DType::F64;
    setup.threads = 1;
    Clicks clicks;
    const PhiloxKey key = philox_key(3, "clicks");
    uint64_t at = 0;
    const auto word = [&] { return philox_word(key, at++); };
    for (int s = 0; s < 4; ++s) {  // the fifth is padding
      clicks.label_count = shape.labels;
      for (int l = 0; l < shape.labels; ++l) clicks.labels.push_back((s + l) % 2 == 0 ? 1.0F : 0.0F);
      if (shape.labels > 1 && s == 2) clicks.labels.back() = NAN;
      clicks.dense.push_back({static_cast<float>(word() % 7) / 4, static_cast<float>(word() % 7) / 4, 0.5F});
      clicks.dense.back().resize(static_cast<size_t>(shape.dense));
      clicks.ids.emplace_back();
      if (shape.weighted) clicks.weights.emplace_back();
      for (const ClickTable& table : setup.schema.tables) {
        clicks.ids.back().emplace_back();
        if (shape.weighted) clicks.weights.back().emplace_back();
        for (uint32_t n = word() % static_cast<uint32_t>(table.max_ids + 1); n > 0; --n) {
          clicks.ids.back().back().push_back(
              static_cast<int32_t>(word() % static_cast<uint32_t>(table.rows)));
          if (shape.weighted) clicks.weights.back().back().push_back(static_cast<float>(1 + word() % 5) / 4);
        }
      }
    }
    ThreadWorld world(1);
    const auto comm = world.join(0);
    Recommender model(*comm, setup);
    Values start;
    collect(model, start);
    EXPECT_EQ(start.contains("param/wide.weight"), shape.wide && shape.dense > 0);
    for (auto& [name, values] : start) {  // larger tables; positive biases keep most of the ReLUs alive
      const double shift = name.find("bias") == std::string::npos ? 0.0 : 0.7;
      for (double& value : values) value = shift + 0.6 * philox_normal(philox_key(8, name), at++);
    }
    const auto loss_at = [&](const Values& values, double lr) {
      assign(model, values);
      model.fetch([&](ClickBatchBuffer& out) { clicks.read(0, 5, out); });
      return model.train(4, 1, lr, lr, {});
    };
    constexpr double kLr = 1e-3;
    loss_at(start, kLr);
    Values moved;
    collect(model, moved);
    int nonzero = 0;
    for (const auto& entry : start) {
      const std::string& name = entry.first;
      if (!name.starts_with("param/")) continue;  // statistics
      for (size_t i = 0; i < entry.second.size(); ++i) {
        const double gradient = (entry.second[i] - moved.at(name)[i]) / kLr;
        const auto loss_moved = [&](double by) {
          Values other = start;
          other[name][i] += by;
          return loss_at(other, 0);
        };
        constexpr double kStep = 1e-5;
        const double numeric = (loss_moved(kStep) - loss_moved(-kStep)) / (2 * kStep);
        EXPECT_NEAR(gradient, numeric, shape.batch_norm ? 1e-6 : 1e-8) << name << " element " << i;
        nonzero += std::abs(numeric) > 1e-4 ? 1 : 0;
      }
    }
    EXPECT_GT(nonzero, 30);
  }
}

}  // namespace
}  // namespace trifold::test
