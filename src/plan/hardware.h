// Hardware describes one kind of device and the node it is in: the figures of its data sheet, and the share
// of them that training reaches. Every forecast of a step's time in this room starts from one.
//
// Data sheets give the peaks. The shares and latencies of the built-in A100 and H100 were fitted to 351
// published training runs (docs/planning.md); those of other devices are the nearest fitted device's, and
// `trifold bench --what hardware` measures those of a machine at hand. A description is a plain value: copy it, change fields with `set`.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trifold {

struct Hardware {
  std::string name;

  // The data sheet. Units are decimal (1e9 bytes) except for memory_gib.
  double tflops = 0;          // dense products in 16 bits
  double tflops_8bit = 0;     // dense products in 8 bits; 0: the device has none
  double memory_gbytes = 0;   // GB/s of device memory
  double memory_gib = 0;      // GiB of device memory
  double processors = 0;      // multiprocessors that tiles of a product are spread over
  double nvlink_gbytes = 0;   // GB/s that a device sends inside its node
  double adapter_gbytes = 0;  // GB/s that a device sends to other nodes
  double devices_per_node = 0;

  // The share of a peak that is reached in a long run.
  double product_share = 0;       // of tflops, by linear layers
  double product_share_8bit = 0;  // of tflops_8bit
  double attention_share = 0;     // of tflops, by fused attention, forward
  double flash_share = 0;         // the same of the first FlashAttention
  double attention_backward = 0;  // rate of the backward of fused attention, relative to its forward
  double memory_share = 0;
  double nvlink_share = 0;
  double network_share = 0;  // of adapter_gbytes, by collectives
  double message_share = 0;  // of adapter_gbytes, by messages between pipeline stages

  double nvlink_latency = 0;   // microseconds of a hop inside a node
  double network_latency = 0;  // microseconds of a hop between nodes
  double launch = 0;           // microseconds of a kernel launch
  double contention = 0;       // how much of the shorter of two overlapping activities is lost
  double product_depth = 0;    // inner dimension at which a product loses half of its rate

  // Bytes and operations per second that are reached.
  double product_rate() const { return tflops * 1e12 * product_share; }
  double memory_rate() const { return memory_gbytes * 1e9 * memory_share; }

  // Bytes that a plan may use. The driver keeps a share of the memory (an A100 of 80 GiB offers 79.2), contexts
  // and the communication library take a fixed part. Nothing is lost to fragmentation, because a run allocates
  // all of its memory once, before the first step.
  double usable_bytes() const {
    constexpr double kDriverShare = 0.01, kLibrariesGib = 2;
    return ((1 - kDriverShare) * memory_gib - kLibrariesGib) * (1 << 30);
  }
};

// The device that `text` names, or the description in a file where it ends in .json. Throws Error(BadInput)
// with the known names, the misspelt key or the missing value.
//
// A file is a JSON object: the keys of hardware_keys(), each a number, and optionally "name" and "base". With
// "base" values that are left out are those of the built-in device; without it every key must be there.
Hardware find_hardware(const std::string& text);

// The built-in names, in the order of --help.
std::vector<std::string_view> hardware_names();
// The keys of a description, as --hardware-set and JSON files spell them.
std::vector<std::string_view> hardware_keys();
// The value of each key, in that order: what a file of this device holds.
std::vector<std::pair<std::string_view, double>> hardware_values(const Hardware& hardware);

// Applies "KEY=VALUE". Throws Error(BadInput) for an unknown key and for a value out of its range.
void set_value(Hardware& hardware, const std::string& assignment);

}  // namespace trifold
