// A trifold_cuda.so whose device is fake (fake_device/device.h): `--device cuda` with this module's
// folder in TRIFOLD_MODULE_PATH runs on it.
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "comm/cuda_module.h"
#include "fake_device/counts.h"
#include "fake_device/device.h"
#include "fake_device/fp8.h"
#include "fake_device/products.h"
#include "fake_device/tf32.h"
#include "ops/contract.h"
#include "ops/cuda/attention_blocks.h"
#include "ops/cuda/attention_choice.h"
#include "ops/cuda/workspace.h"
#include "ops/narrow.h"

namespace trifold::test {
namespace {

// An argument of an operation until the queue comes to it, its tensors where the device reads them.
template <class Arg>
struct KeptArgument {
  KeptArgument(const FakeDevice& device, const Arg& arg) : value(arg) {
    if constexpr (std::is_same_v<Arg, Tensor>) value = device.real(arg);
    if constexpr (std::is_same_v<Arg, Forms>)
      for (Tensor Forms::*form : {&Forms::rows, &Forms::turned, &Forms::sums})
        value.*form = device.real(arg.*form);
    if constexpr (std::is_same_v<Arg, Factor>) value.number = device.real(arg.number);
    if constexpr (std::is_same_v<Arg, Dropout>) value.sample = device.real(arg.sample);
    if constexpr (std::is_same_v<Arg, Attention>) {
      value.lengths = device.real(arg.lengths);
      value.sample = device.real(arg.sample);
      for (Tensor Attention::*tensor :
           {&Attention::first_keys, &Attention::key_values, &Attention::dkey_values, &Attention::dqueries})
        value.*tensor = device.real(arg.*tensor);
    }
    if constexpr (requires { arg.numbers; }) value.numbers = device.real(arg.numbers);  // update rules
  }
  const Arg& get() const { return value; }
  Arg value;
};

template <class View>
View real(const FakeDevice& device, View view, std::initializer_list<Tensor View::*> tensors) {
  for (Tensor View::*tensor : tensors) view.*tensor = device.real(view.*tensor);
  return view;
}

LookupOrder real(const FakeDevice& device, const LookupOrder& order) {
  return real(device, order,
              {&LookupOrder::row, &LookupOrder::begin, &LookupOrder::bag, &LookupOrder::weight,
               &LookupOrder::count, &LookupOrder::scratch});
}

// Lists are read when the operation is called, as the CUDA table does.
template <class View>
struct KeptArgument<std::span<const View>> {
  KeptArgument(const FakeDevice& device, std::span<const View> views) {
    for (const View& view : views) {
      if constexpr (std::is_same_v<View, Tensor>)
        list.push_back(device.real(view));
      else if constexpr (std::is_same_v<View, BagLookup>)
        list.push_back(real(device, view,
                            {&BagLookup::table, &BagLookup::ids, &BagLookup::offsets, &BagLookup::weights}));
      else if constexpr (std::is_same_v<View, LookupOrder>)
        list.push_back(real(device, view));
      else if constexpr (std::is_same_v<View, ColumnCopy>)
        list.push_back(real(device, view, {&ColumnCopy::row_scale}));
      else
        list.push_back(real(device, view,
                            {&RowUpdate::table, &RowUpdate::state, &RowUpdate::second, &RowUpdate::squares,
                             &RowUpdate::touched}));
    }
    if constexpr (std::is_same_v<View, RowUpdate>) {
      for (const View& view : views) orders.push_back(real(device, *view.order));
      for (size_t i = 0; i < list.size(); ++i) list[i].order = &orders[i];
    }
  }
  std::span<const View> get() const { return list; }
  std::vector<View> list;
  std::vector<LookupOrder> orders;  // of updates
};

// TRIFOLD_FAKE_DEVICES of them, by default 1.
int device_count() {
  const char* count = std::getenv("TRIFOLD_FAKE_DEVICES");
  return count == nullptr ? 1 : std::stoi(count);
}

FakeDevice& the_device(int index = 0) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, std::unique_ptr<FakeDevice>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<FakeDevice>& device = devices[index];
  if (device == nullptr) device = std::make_unique<FakeDevice>(index);
  return *device;
}

// The tensors among an operation's arguments, and whether the last, a beta or a flag, is not zero: then a
// product or a sum over rows adds to its result.
template <class... Args>
std::pair<std::vector<Tensor>, bool> counted_arguments(const Args&... args) {
  std::pair<std::vector<Tensor>, bool> result;
  const auto look = [&](const auto& arg) {
    if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, Tensor>) result.first.push_back(arg);
    if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, Forms>)
      for (const Tensor& form : {arg.rows, arg.turned, arg.sums})
        if (is_present(form)) result.first.push_back(form);
  };
  (look(args), ...);
  const auto last = std::get<sizeof...(Args) - 1>(std::tuple<const Args&...>(args...));
  if constexpr (std::is_arithmetic_v<std::decay_t<decltype(last)>>) result.second = last != 0;
  return result;
}

// The workspace that the CUDA table takes for an operation with these arguments (ops/cuda/workspace.h).
struct TakesNothing {
  static size_t bytes(const auto&...) { return 0; }
};
template <auto Entry>
struct Workspace : TakesNothing {};

// Products, and sums over rows, which take no more.
struct TakesAsProducts {
  static size_t bytes(const auto&...) { return cuda::kProductWorkspace; }
};
template <>
struct Workspace<&OpTable::gemm> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::affine> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::affine_add> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::affine_gelu> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::affine_backward_input> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::affine_backward_gelu> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::affine_backward_weight> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::linear> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::layer_norm_backward_weight> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::layer_norm_backward_all> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::rms_norm_backward_weight> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::rms_norm_backward_all> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::column_sum> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::sum_squares> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::weighted_sum> : TakesAsProducts {};
template <>
struct Workspace<&OpTable::exact_sum> : TakesAsProducts {};

template <bool Deterministic>
struct TakesAsAttention {
  static size_t bytes(Tensor, Tensor, Tensor, Tensor out, Tensor, const Attention& how) {
    if (!cuda::is_for_cudnn(how, out.dtype)) return size_t{0};
    if (how.rows.rows() > 0) return cuda::blocks_workspace(how, out.dtype, Deterministic);
    return cuda::attention_workspace({how.batch, how.seq, how.heads, how.kv_heads, how.head_dim,
                                      how.lengths.data != nullptr, Deterministic});
  }
};
template <>
struct Workspace<&OpTable::attention_backward> : TakesAsAttention<true> {};

template <>
struct Workspace<&OpTable::embedding_backward> {
  static size_t bytes(Tensor, Tensor, Tensor ids, Tensor, int64_t) {
    return cuda::embedding_workspace(ids.elements());
  }
};

template <>
struct Workspace<&OpTable::sort_lookups> {
  static size_t bytes(std::span<const LookupOrder>, std::span<const BagLookup> lookups) {
    std::vector<int64_t> keys;
    for (const BagLookup& lookup : lookups) keys.push_back(lookup.ids.elements());
    return cuda::sort_workspace(keys);
  }
};

struct TakesAsUpdates {
  static size_t bytes(Tensor dy, std::span<const RowUpdate> updates, const auto&...) {
    int64_t lookups = 0, widest = 0;
    for (const RowUpdate& update : updates) {
      lookups = std::max(lookups, update.order->row.elements());
      widest = std::max(widest, update.table.last_dim());
    }
    return cuda::update_workspace(static_cast<int64_t>(updates.size()), lookups, widest, size_of(dy.dtype));
  }
};
template <>
struct Workspace<&OpTable::update_rows> : TakesAsUpdates {};
template <>
struct Workspace<&OpTable::row_squares> : TakesAsUpdates {};
template <>
struct Workspace<&OpTable::row_gradients> : TakesAsUpdates {};

template <auto Entry>
Counts::Operation& counted() {
  static auto& operation = *new Counts::Operation(__PRETTY_FUNCTION__);
  return operation;
}

// An entry of a table of the processor, as one of the device: put on the queue of the stream.
template <auto Entry, const OpTable& (*Table)(), class Takes = Workspace<Entry>>
struct On;
template <class... Args, void (*OpTable::*Entry)(Stream&, Args...), const OpTable& (*Table)(), class Takes>
struct On<Entry, Table, Takes> {
  static void call(Stream& stream, Args... args) {
    if (stream.mode() == Stream::Mode::Dry) return;
    auto* queue = static_cast<FakeDeviceQueue*>(stream.queue());
    check(queue != nullptr, "an operation of a device was given a stream of the host");
    if (const size_t bytes = Takes::bytes(args...); bytes > 0)
      stream.enqueue([queue, bytes] { queue->workspace(bytes); });
    Counts::Operation& operation = counted<Entry>();
    const auto [tensors, adds] = counted_arguments(args...);
    Products::instance().meet(operation.name(), tensors);
    if (!operation.call(tensors, adds)) return;
    // Held, not copied: a closure of all that would be too large for a stream's queue.
    auto held = std::make_shared<std::tuple<KeptArgument<std::decay_t<Args>>...>>(
        KeptArgument<std::decay_t<Args>>(queue->device(), args)...);
    stream.enqueue([queue, held = std::move(held)] {
      queue->put([queue, held] {
        std::apply([queue](auto&... each) { (Table().*Entry)(queue->worker(), each.get()...); }, *held);
        queue->worker().run([held] {});  // the processor's operations refer to lists
      });
    });
  }
};

void copy(Stream& stream, Tensor y, Tensor x) {
  check(y.dtype == x.dtype && y.elements() == x.elements(), "copy between different tensors");
  if (Counts::instance().leaves_out(y.bytes())) return;
  stream.enqueue([queue = stream.queue(), y, x] { queue->copy(y.data, x.data, x.bytes()); });
}

// With the operations of a table of the processor.
template <const OpTable& (*Table)()>
OpTable make_table(Device& device, const char* name, bool deterministic) {
  OpTable table{};
  table.name = deterministic ? name : "fake, in any order";
  table.device = &device;
  Operations::for_each([&](auto operation) {
    constexpr auto kEntry = decltype(operation)::kEntry;
    table.*kEntry = On<kEntry, Table>::call;
  });
  table.copy = copy;
  if (!deterministic)
    table.attention_backward = On<&OpTable::attention_backward, Table, TakesAsAttention<false>>::call;
  return table;
}

OpTable make_table_of(Device& device, const CudaTable& which) {
  if (which.fp8_blocks) return make_table<narrow_cpu_ops>(device, "fake, fp8 in blocks", which.deterministic);
  if (which.fp8) return make_table<narrow_ops>(device, "fake, fp8", which.deterministic);
  if (which.tf32) return make_table<tf32_ops>(device, "fake, tf32", which.deterministic);
  return make_table<cpu_ops>(device, "fake", which.deterministic);
}

}  // namespace
}  // namespace trifold::test

extern "C" {

int64_t trifold_cuda_version() { return trifold::kCudaModuleVersion; }

int trifold_cuda_device_count() { return trifold::test::device_count(); }

// Tests may give it less.
size_t trifold_cuda_device_memory(int /*index*/) {
  const char* bytes = std::getenv("TRIFOLD_FAKE_DEVICE_MEMORY");
  return bytes == nullptr ? trifold::test::the_device().memory().total : std::stoull(bytes);
}

void trifold_cuda_report(trifold::CudaReport* report) {
  const trifold::Device& device = trifold::test::the_device();
  report->driver = report->needed = 12080;
  report->devices = {{device.name(), device.memory().total, ""}};
}

const trifold::OpTable* trifold_cuda_ops(int index, const trifold::CudaTable& which) {
  static std::mutex mutex;
  static auto& tables = *new std::map<std::pair<int, trifold::CudaTable>, trifold::OpTable>();
  const std::lock_guard lock(mutex);
  const auto [made, is_new] = tables.try_emplace({index, which});
  if (is_new) made->second = trifold::test::make_table_of(trifold::test::the_device(index), which);
  return &made->second;
}

trifold::ProductTuning* trifold_cuda_products(int /*index*/) { return &trifold::test::Products::instance(); }

// For tests alone.
int64_t fake_device_products_measured() { return trifold::test::Products::instance().measured(); }
int64_t fake_device_graph_launches() { return trifold::test::the_device().graph_launches(); }
void fake_device_asked(int64_t* times, size_t* device, size_t* shared) {
  const auto asked = trifold::test::the_device().asked();
  *times = asked.times;
  *device = asked.device;
  *shared = asked.shared;
}
// Asked::workspaces, captures and urgent.
void fake_device_made(int64_t* workspaces, int64_t* captures, int64_t* urgent) {
  const auto asked = trifold::test::the_device().asked();
  *workspaces = asked.workspaces;
  *captures = asked.captures;
  *urgent = asked.urgent;
}
void fake_device_count_alone(bool alone) { trifold::test::Counts::instance().count_alone(alone); }
// The text is good until the next call.
const char* fake_device_counts() {
  static std::string text;
  text = trifold::test::Counts::instance().take();
  return text.c_str();
}
void fake_device_refuse_capture(int64_t capture, int64_t piece) {
  trifold::test::FakeDevice::refuse_capture(capture, piece);
}
}
