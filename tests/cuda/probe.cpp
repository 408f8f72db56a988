#include "cuda/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace trifold::probe {

namespace {

using Json = nlohmann::json;

constexpr int kAlgorithms = 8;

class Run {
 public:
  Run(ProbeDevice& device, const Probe& probe) : device_(device), probe_(probe) {
    report_ = {{"device", device.name()}, {"left_out", 0}};
    for (const char* list : {"copies", "products", "attention", "loss", "failures"})
      report_[list] = Json::array();
  }

  Json run() {
    for (const int64_t mebibytes : {16, 256, 2048}) copy(mebibytes << 20);
    for (const Model& model : models()) {
      for (const ProductCase& each : products_of(model)) product(each);
      attention(model);
      for (const int64_t rows : loss_chunks()) loss(model, rows);
      save();
    }
    save();
    return report_;
  }

 private:
  // Whether `work` was done: in time, and without an error.
  bool measure(const std::string& what, const std::function<void()>& work) {
    if (probe_.clock() >= probe_.seconds) {
      report_["left_out"] = report_["left_out"].get<int>() + 1;
      return false;
    }
    try {
      work();
      return true;
    } catch (const std::exception& error) {
      report_["failures"].push_back({{"what", what}, {"why", error.what()}});
      return false;
    }
  }

  void copy(int64_t bytes) {
    measure(fmt::format("copy of {} bytes", bytes), [&] {
      const double seconds = device_.copy(bytes);
      report_["copies"].push_back({{"bytes", bytes},
                                   {"seconds", seconds},
                                   {"bytes_per_second", 2 * static_cast<double>(bytes) / seconds}});
    });
  }

  void product(const ProductCase& each) {
    const std::string what = fmt::format("{} {} {}", each.model, each.layer, name_of(each.variant));
    Json line = {{"model", each.model}, {"layer", each.layer}, {"variant", name_of(each.variant)},
                 {"m", each.m},         {"n", each.n},         {"k", each.k}};
    const bool known = measure(what, [&] {
      const std::vector<double> seconds = device_.product(each, kAlgorithms);
      line["seconds"] = seconds;
      if (seconds.empty()) return;
      const double best = *std::min_element(seconds.begin(), seconds.end());
      line["best"] = best;
      line["flops_per_second"] = each.flops() / best;
    });
    if (!known) return;
    if (each.variant != Variant::Plain && each.variant != Variant::F32 && each.variant != Variant::F32Added)
      measure(what + " unfused", [&] { line["unfused"] = device_.unfused(each); });
    report_["products"].push_back(line);
  }

  void attention(const Model& model) {
    Json line = {{"model", model.name}};
    const auto add = [&](const char* name, bool backward, bool deterministic) {
      measure(fmt::format("{} attention {}", model.name, name),
              [&] { line[name] = device_.attention(model, backward, deterministic); });
    };
    add("forward", false, true);
    add("backward", true, false);
    add("backward_deterministic", true, true);
    if (line.size() > 1) report_["attention"].push_back(line);
  }

  void loss(const Model& model, int64_t rows) {
    measure(fmt::format("{} loss by {} rows", model.name, rows), [&] {
      const double seconds = device_.loss(model, rows);
      report_["loss"].push_back({{"model", model.name}, {"rows", rows}, {"seconds", seconds}});
    });
  }

  void save() {
    report_["seconds"] = probe_.clock();
    if (probe_.save) probe_.save(report_);
  }

  ProbeDevice& device_;
  const Probe& probe_;
  Json report_;
};

std::string of_products(const Json& report, const std::string& model) {
  double first = 0, best = 0, fused = 0, unfused = 0;
  for (const Json& line : report["products"]) {
    if (line["model"] != model || !line.contains("best")) continue;
    first += line["seconds"].front().get<double>();
    best += line["best"].get<double>();
    if (!line.contains("unfused")) continue;
    fused += line["best"].get<double>();
    unfused += line["unfused"].get<double>();
  }
  return fmt::format(
      "{}: products by the first algorithm {:.3f} ms, by the best {:.3f} ms; "
      "fused {:.3f} ms, unfused {:.3f} ms",
      model, first * 1e3, best * 1e3, fused * 1e3, unfused * 1e3);
}

}  // namespace

std::string name_of(Variant variant) {
  switch (variant) {
    case Variant::Plain:
      return "plain";
    case Variant::Bias:
      return "bias";
    case Variant::GeluAux:
      return "gelu_aux";
    case Variant::DGelu:
      return "dgelu";
    case Variant::F32:
      return "f32";
    case Variant::F32Added:
      break;
  }
  return "f32_added";
}

const std::vector<Model>& models() {
  static const std::vector<Model> kModels{
      {"1558M", 1600, 25, 16}, {"355M", 1024, 16, 16}, {"124M", 768, 12, 32}};
  return kModels;
}

std::vector<ProductCase> products_of(const Model& model) {
  struct Layer {
    const char* name;
    int64_t in, out;
  };
  const int64_t w = model.width;
  const int64_t rows = model.rows();
  std::vector<ProductCase> cases;
  for (const Layer& layer : {Layer{"qkv", w, 3 * w}, {"proj", w, w}, {"up", w, 4 * w}, {"down", 4 * w, w}}) {
    const std::string name = layer.name;
    const auto forward = [&](Variant variant) {
      cases.push_back({model.name, name, variant, layer.out, rows, layer.in, true, false});
    };
    const auto input = [&](Variant variant) {
      cases.push_back({model.name, name + "_input", variant, layer.in, rows, layer.out, false, false});
    };
    const auto weight = [&](Variant variant) {
      cases.push_back({model.name, name + "_weight", variant, layer.in, layer.out, rows, false, true});
    };
    forward(Variant::Plain);
    forward(Variant::Bias);
    if (name == "up") forward(Variant::GeluAux);
    input(Variant::Plain);
    if (name == "down") input(Variant::DGelu);
    weight(Variant::F32);
    weight(Variant::F32Added);
  }
  return cases;
}

const std::vector<int64_t>& loss_chunks() {
  static const std::vector<int64_t> kRows{4096, 256, 16384, 1024, 2048, 8192, 512};
  return kRows;
}

nlohmann::json run(ProbeDevice& device, const Probe& probe) { return Run(device, probe).run(); }

std::vector<std::string> summary(const nlohmann::json& report) {
  std::vector<std::string> lines;
  for (const Json& line : report["copies"])
    lines.push_back(fmt::format("copy of {} MiB: {:.0f} GB/s", line["bytes"].get<int64_t>() >> 20,
                                line["bytes_per_second"].get<double>() * 1e-9));
  for (const Model& model : models()) {
    lines.push_back(of_products(report, model.name));
    for (const Json& line : report["attention"])
      if (line["model"] == model.name)
        lines.push_back(fmt::format(
            "{}: attention forward {:.3f} ms, backward {:.3f} ms, the same bits each time {:.3f} ms",
            model.name, line.value("forward", 0.0) * 1e3, line.value("backward", 0.0) * 1e3,
            line.value("backward_deterministic", 0.0) * 1e3));
    std::string chunks;
    for (const Json& line : report["loss"])
      if (line["model"] == model.name)
        chunks +=
            fmt::format(" {}: {:.2f} ms", line["rows"].get<int64_t>(), line["seconds"].get<double>() * 1e3);
    if (!chunks.empty())
      lines.push_back(fmt::format("{}: output's loss by rows at once:{}", model.name, chunks));
  }
  lines.push_back(fmt::format("{} measurements failed, {} had no time left", report["failures"].size(),
                              report["left_out"].get<int>()));
  return lines;
}

}  // namespace trifold::probe
