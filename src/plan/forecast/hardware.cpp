#include "plan/forecast/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "core/error.h"
#include "core/read_json.h"
#include "plan/forecast/assignment.h"
#include "plan/forecast/node_cores.h"

namespace trifold {

namespace {

struct HardwareField {
  std::string_view key;
  double Hardware::*value;
  bool may_be_zero;
  bool may_be_missing = false;
  bool is_share = false;  // at most 1
};

constexpr HardwareField kHardwareFields[] = {
    {"tflops", &Hardware::tflops, false},
    {"tflops-8bit", &Hardware::tflops_8bit, true},
    {"memory-gbytes", &Hardware::memory_gbytes, false},
    {"memory-gib", &Hardware::memory_gib, false},
    {"processors", &Hardware::processors, false},
    {"nvlink-gbytes", &Hardware::nvlink_gbytes, false},
    {"adapter-gbytes", &Hardware::adapter_gbytes, false},
    {"devices-per-node", &Hardware::devices_per_node, false},
    {"product-share", &Hardware::product_share, false},
    {"product-share-8bit", &Hardware::product_share_8bit, true},
    {"attention-share", &Hardware::attention_share, false},
    {"flash-share", &Hardware::flash_share, false},
    {"attention-backward", &Hardware::attention_backward, false},
    {"memory-share", &Hardware::memory_share, false},
    {"nvlink-share", &Hardware::nvlink_share, false},
    {"network-share", &Hardware::network_share, false},
    {"message-share", &Hardware::message_share, false},
    {"nvlink-latency", &Hardware::nvlink_latency, true},
    {"network-latency", &Hardware::network_latency, true},
    {"launch", &Hardware::launch, true},
    {"contention", &Hardware::contention, true},
    {"product-depth", &Hardware::product_depth, true},
    {"attention-length", &Hardware::attention_length, true, true},
    {"wave-loss", &Hardware::wave_loss, true, true, true},
    {"expert-share", &Hardware::expert_share, false, true, true},
    {"expert-weights-share", &Hardware::expert_weights_share, false, true, true},
    {"rounding-bytes", &Hardware::rounding_bytes, true, true},
    {"kernel-floor", &Hardware::kernel_floor, true, true},
    {"bias-passes", &Hardware::bias_passes, true, true},
    {"update-bytes", &Hardware::update_bytes, true, true},
    {"weight-bytes", &Hardware::weight_bytes, true, true},
    {"node-cores", &Hardware::node_cores, true, true},
    {"rank-cores", &Hardware::rank_cores, true, true},
};

Hardware a100(std::string name, double memory_gbytes, double memory_gib) {
  Hardware hardware;
  hardware.name = std::move(name);
  hardware.tflops = 312;
  hardware.memory_gbytes = memory_gbytes;
  hardware.memory_gib = memory_gib;
  hardware.processors = 108;
  hardware.nvlink_gbytes = 300;
  hardware.adapter_gbytes = 25;
  hardware.devices_per_node = 8;
  hardware.product_share = 0.777;
  hardware.attention_share = 0.416;
  hardware.flash_share = 0.416;
  hardware.attention_backward = 0.85;
  hardware.memory_share = 0.812;
  hardware.nvlink_share = 0.763;
  hardware.network_share = 0.662;
  hardware.message_share = 0.527;
  hardware.nvlink_latency = 2.2;
  hardware.network_latency = 7.3;
  hardware.launch = 4;
  hardware.contention = 0.244;
  hardware.product_depth = 56;
  return hardware;
}

Hardware h100(std::string name, double memory_gbytes, double memory_gib) {
  Hardware hardware = a100(std::move(name), memory_gbytes, memory_gib);
  hardware.tflops = 989;
  hardware.tflops_8bit = 1979;
  hardware.processors = 132;
  hardware.nvlink_gbytes = 450;
  hardware.adapter_gbytes = 50;
  hardware.product_share = 0.664;
  hardware.product_share_8bit = 0.670;
  hardware.attention_share = 0.436;
  hardware.flash_share = 0.205;
  return hardware;
}

// What this engine reached on an H100, on which figures between devices were not measured. Attention and the products of
// experts are as measured alone (docs/measurements/probe_h100.json, experts_products_h100.json), memory and update
// nearly so (kernels_h100.json, step_parts_h100.json). The rest was fitted to the steps of training_h100.json, of which
// the unit test PlanOwnSteps has the forecasts: in a step the card keeps lower clocks than for one product, so products
// reach less than the 0.74 that they reach alone.
void take_own_figures(Hardware& hardware) {
  hardware.product_share = 0.71;
  hardware.product_share_8bit = 0.55;
  hardware.rounding_bytes = 5;
  hardware.wave_loss = 0.63;
  hardware.expert_share = 0.94;
  hardware.expert_weights_share = 0.5;
  hardware.bias_passes = 1;
  hardware.attention_share = 0.555;
  hardware.attention_backward = 0.605;
  hardware.attention_length = 250;
  hardware.memory_share = 0.89;
  hardware.launch = 10;
  hardware.kernel_floor = 3;
  hardware.update_bytes = 30;
  hardware.weight_bytes = 4;
}

// The shares are copied from the H100, not measured.
Hardware b200() {
  Hardware hardware = h100("b200", 8000, 180);
  hardware.tflops = 2250;
  hardware.tflops_8bit = 4500;
  hardware.processors = 148;
  hardware.nvlink_gbytes = 900;
  return hardware;
}

// A 32-core socket of a 2023 server, and one 200 Gbit/s adapter for two sockets. Products are not limited by waves of
// tiles.
Hardware cpu() {
  Hardware hardware = a100("cpu", 300, 256);
  hardware.tflops = 3;
  hardware.processors = 1;
  hardware.nvlink_gbytes = 50;
  hardware.adapter_gbytes = 12.5;
  hardware.devices_per_node = 2;
  hardware.nvlink_latency = 5;
  hardware.network_latency = 10;
  hardware.launch = 1;
  return hardware;
}

struct KnownDevice {
  Hardware fitted;
  void (*take_own)(Hardware&) = nullptr;  // if this engine's kernels were measured on it
};

const std::vector<KnownDevice>& known_hardware() {
  static const std::vector<KnownDevice> kKnown = {{a100("a100-40gb", 1555, 40)},
                                                  {a100("a100-80gb", 2039, 80)},
                                                  {h100("h100", 3350, 80), take_own_figures},
                                                  {h100("h200", 4800, 141), take_own_figures},
                                                  {b200()},
                                                  {cpu()}};
  return kKnown;
}

std::optional<Hardware> built_in(std::string_view name, DeviceFigures figures) {
  for (const KnownDevice& known : known_hardware()) {
    if (known.fitted.name != name) continue;
    Hardware hardware = known.fitted;
    if (figures == DeviceFigures::Own && known.take_own != nullptr) known.take_own(hardware);
    return hardware;
  }
  return std::nullopt;
}

void assign(Hardware& hardware, std::string_view key, double value) {
  const auto* field = std::find_if(std::begin(kHardwareFields), std::end(kHardwareFields),
                                   [&](const HardwareField& known) { return known.key == key; });
  if (field == std::end(kHardwareFields))
    bad_input("'{}' is not a key of a hardware description: known keys are {}", key,
              fmt::join(hardware_keys(), ", "));
  if (!std::isfinite(value) || value < 0 || (value == 0 && !field->may_be_zero))
    bad_input("{} is {}; it must be {} 0", key, value, field->may_be_zero ? "at least" : "above");
  // Beyond these a forecast overflows.
  constexpr double kLeast = 1e-6, kMost = 1e9;
  if (value > kMost || (value > 0 && value < kLeast))
    bad_input("{} is {}; it must be between {} and {}", key, value, kLeast, kMost);
  if (field->is_share && value > 1) bad_input("{} is {}; it is a share, at most 1", key, value);
  if (field->value == &Hardware::devices_per_node && value < 1)
    bad_input("{} is {}; it must be at least 1", key, value);
  hardware.*(field->value) = value;
}

// BadInput if only one of two values is given that are needed together; `source` gave them.
void check_cores(const Hardware& hardware, const std::string& source) {
  if ((hardware.node_cores > 0) != (hardware.rank_cores > 0))
    bad_input(
        "{}: node-cores {} and rank-cores {} describe how ranks divide a machine: give both, or neither",
        source, hardware.node_cores, hardware.rank_cores);
}

Hardware read_hardware(const std::string& path, DeviceFigures figures) {
  const nlohmann::json whole = read_json_file(path, {int64_t{1} << 20});
  const JsonView view(whole, path);
  Hardware hardware;
  const bool based = view.has("base");
  if (based) {
    const std::string base = view.at("base").text();
    const std::optional<Hardware> known = built_in(base, figures);
    if (!known) view.at("base").refuse(fmt::format("one of {}", fmt::join(hardware_names(), ", ")));
    hardware = *known;
  }
  hardware.name = view.text("name", path);
  std::vector<std::string> given;
  view.members([&](const std::string& key, const JsonView& value) {
    if (key == "name" || key == "base" || key == "made_by") return;
    const double number = value.number();
    try {
      assign(hardware, key, number);
    } catch (Error& error) {
      error.add_context(path);
      throw;
    }
    given.push_back(key);
  });
  std::vector<std::string_view> missing;
  for (const HardwareField& field : kHardwareFields)
    if (!field.may_be_missing && std::find(given.begin(), given.end(), field.key) == given.end())
      missing.push_back(field.key);
  if (!based && !missing.empty())
    bad_input("{}: {} {} missing: give {}, or \"base\" with the built-in device to take the rest from", path,
              fmt::join(missing, ", "), missing.size() == 1 ? "is" : "are",
              missing.size() == 1 ? "it" : "them");
  check_cores(hardware, path);
  return hardware;
}

}  // namespace

std::vector<std::string_view> hardware_names() {
  std::vector<std::string_view> names;
  for (const KnownDevice& known : known_hardware()) names.emplace_back(known.fitted.name);
  return names;
}

std::vector<std::string_view> hardware_keys() {
  std::vector<std::string_view> keys;
  for (const HardwareField& field : kHardwareFields) keys.push_back(field.key);
  return keys;
}

std::vector<std::pair<std::string_view, double>> hardware_values(const Hardware& hardware) {
  std::vector<std::pair<std::string_view, double>> values;
  for (const HardwareField& field : kHardwareFields) values.emplace_back(field.key, hardware.*(field.value));
  return values;
}

Hardware find_hardware(const std::string& text, DeviceFigures figures, std::string_view option) {
  if (text.ends_with(".json")) {
    try {
      return read_hardware(text, figures);
    } catch (Error& error) {
      error.add_context(fmt::format("--{}", option));
      throw;
    }
  }
  if (const std::optional<Hardware> known = built_in(text, figures)) return *known;
  bad_input("--{} {} is not known: give {}, or a file whose name ends in .json", option, text,
            fmt::join(hardware_names(), ", "));
}

Hardware of_ranks(const Hardware& hardware, const MeshConfig& mesh) {
  check_cores(hardware, "--hardware-set");  // it may have changed only one of them
  if (hardware.node_cores <= 0 || hardware.rank_cores <= 0) return hardware;
  const RankCores here =
      rank_cores({hardware.node_cores, hardware.rank_cores, hardware.devices_per_node}, mesh);
  Hardware rank = hardware;
  rank.tflops *= here.ratio;
  rank.tflops_8bit *= here.ratio;
  rank.memory_gbytes *= here.ratio;
  rank.memory_gib *= hardware.node_cores / hardware.rank_cores / here.ranks;
  rank.rank_cores *= here.ratio;
  return rank;
}

void set_value(Hardware& hardware, const std::string& assignment) {
  const auto [key, value] = split_assignment("--hardware-set", assignment);
  try {
    assign(hardware, key, parse_number(key, value));
  } catch (Error& error) {
    error.add_context("--hardware-set");
    throw;
  }
}

}  // namespace trifold
