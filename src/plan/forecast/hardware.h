// Hardware describes one kind of device and its node: the peaks of the data sheet, and the share of each peak that
// training sustains. The forecasts of --hardware start from one.
//
// A built-in device has figures of two kinds. `Fitted`: the shares and latencies of the A100 and the H100 were fitted to
// 351 published training runs of other programs (docs/plan.md); other devices use the values of the nearest fitted one.
// `Own`: what this engine's kernels were measured to reach, where they were measured: on the H100 and the H200; elsewhere
// as fitted. `trifold bench --what hardware` measures a machine's own. A description is a plain value: copy it, change
// fields with `set_value`.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/fields/config.h"

namespace trifold {

struct Hardware {
  std::string name;

  // The data sheet. Units are decimal (1e9 bytes) except for memory_gib.
  double tflops = 0;          // dense products in 16 bits
  double tflops_8bit = 0;     // dense products in 8 bits; 0: not supported
  double memory_gbytes = 0;   // GB/s of device memory
  double memory_gib = 0;      // GiB of device memory
  double processors = 0;      // multiprocessors, over which tiles of a product are spread
  double nvlink_gbytes = 0;   // GB/s that a device sends inside its node
  double adapter_gbytes = 0;  // GB/s that a device sends to other nodes
  double devices_per_node = 0;

  // The share of each peak that is sustained.
  double product_share = 0;       // linear layers, share of tflops
  double product_share_8bit = 0;  // 8-bit products, share of tflops_8bit
  double attention_share = 0;     // forward of fused attention, share of tflops
  double flash_share = 0;         // forward of the first FlashAttention, share of tflops
  double attention_backward = 0;  // rate of the backward of fused attention, relative to its forward
  double memory_share = 0;
  double nvlink_share = 0;
  double network_share = 0;  // collectives, share of adapter_gbytes
  double message_share = 0;  // messages between pipeline stages, share of adapter_gbytes

  double nvlink_latency = 0;   // microseconds of a hop inside a node
  double network_latency = 0;  // microseconds of a hop between nodes
  double launch = 0;           // microseconds of a kernel launch
  double contention = 0;       // share of the shorter of two overlapping activities that is lost
  double product_depth = 0;    // inner dimension at which a product loses half of its rate

  // Figures in which programs differ; these values belong to the fitted shares.
  double attention_length = 900;  // positions of a sample at which fused attention reaches half of its rate
  double wave_loss = 1;           // share of the idle time in the last wave of a product's tiles that is lost
  double expert_share = 1;        // rate of the products of experts, relative to one product of their size
  double expert_weights_share = 1;  // the same for the gradients of their weights
  double rounding_bytes = 2.9;      // bytes moved to round an element of a product's factor to 8 bits
  double kernel_floor = 0;          // microseconds of a kernel that moves memory, besides the bytes
  double bias_passes = 0;    // passes over a gradient to add up its rows for a bias, besides the product
  double update_bytes = 44;  // bytes that an update moves for an element whose state the rank has
  double weight_bytes = 10;  // and for each weight that the rank has

  // Set for a machine whose ranks divide its processor cores (`of_ranks`); 0: each rank has a device.
  double node_cores = 0;  // cores of a node
  double rank_cores = 0;  // cores of the rank that the figures above describe

  // Sustained bytes and operations per second.
  double product_rate() const { return tflops * 1e12 * product_share; }
  double memory_rate() const { return memory_gbytes * 1e9 * memory_share; }

  // Bytes that a plan may use. The driver reserves a share of the memory (an A100 of 80 GiB offers 79.2), and contexts
  // and the communication library take a fixed amount. Nothing is lost to fragmentation, because a run allocates all of
  // its memory once, before the first step.
  double usable_bytes() const {
    constexpr double kDriverShare = 0.01, kLibrariesGib = 2;
    return ((1 - kDriverShare) * memory_gib - kLibrariesGib) * (1 << 30);
  }
};

// Whose figures of a device: this engine's as measured, or those fitted to runs of other programs.
enum class DeviceFigures { Own, Fitted };

// The built-in device named `text`, or the description in the file `text` if it ends in .json. Throws Error(BadInput)
// with the known names, the misspelt key or the missing value.
//
// A file is a JSON object: the keys of hardware_keys(), each a number, and optionally "name" and "base". Missing values
// are taken from the built-in device "base"; without "base" every key is required but the two for cores and those in
// which programs differ. `option` names the option in messages.
Hardware find_hardware(const std::string& text, DeviceFigures figures, std::string_view option = "hardware");

// The built-in names, in the order of --help.
std::vector<std::string_view> hardware_names();
// The keys of a description, as --hardware-set and JSON files spell them.
std::vector<std::string_view> hardware_keys();
// The value of each key, in that order: the content of a file for this device.
std::vector<std::pair<std::string_view, double>> hardware_values(const Hardware& hardware);

// The hardware available to one rank of a run. With `node_cores`, the ranks of a node divide its cores, a rank's
// figures are proportional to its cores, and memory is divided evenly. BadInput if only one of `node_cores` and
// `rank_cores` is set.
Hardware of_ranks(const Hardware& hardware, const MeshConfig& mesh);

// Applies "KEY=VALUE". Throws Error(BadInput) for an unknown key and for a value out of its range.
void set_value(Hardware& hardware, const std::string& assignment);

}  // namespace trifold
