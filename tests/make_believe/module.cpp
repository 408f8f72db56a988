// A trifold_cuda.so whose device is make-believe (make_believe/device.h): `--device cuda` with this module's
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
#include "make_believe/counts.h"
#include "make_believe/device.h"
#include "make_believe/fp8.h"
#include "make_believe/products.h"
#include "make_believe/tf32.h"
#include "ops/cuda/attention_choice.h"
#include "ops/cuda/workspace.h"

namespace trifold::test {
namespace {

// An argument of an operation until the queue comes to it, its tensors where the device reads them.
template <class Arg>
struct Held {
  Held(const MakeBelieveDevice& device, const Arg& arg) : value(arg) {
    if constexpr (std::is_same_v<Arg, Tensor>) value = device.real(arg);
    if constexpr (std::is_same_v<Arg, Factor>) value.number = device.real(arg.number);
    if constexpr (std::is_same_v<Arg, Dropout>) value.sample = device.real(arg.sample);
    if constexpr (std::is_same_v<Arg, Attention>) {
      value.lengths = device.real(arg.lengths);
      value.sample = device.real(arg.sample);
    }
    if constexpr (requires { arg.numbers; }) value.numbers = device.real(arg.numbers);  // update rules
  }
  const Arg& get() const { return value; }
  Arg value;
};

template <class View>
View real(const MakeBelieveDevice& device, View view, std::initializer_list<Tensor View::*> tensors) {
  for (Tensor View::*tensor : tensors) view.*tensor = device.real(view.*tensor);
  return view;
}

LookupOrder real(const MakeBelieveDevice& device, const LookupOrder& order) {
  return real(device, order,
              {&LookupOrder::row, &LookupOrder::begin, &LookupOrder::bag, &LookupOrder::weight,
               &LookupOrder::count, &LookupOrder::scratch});
}

// Lists are read when the operation is called, as the CUDA table does.
template <class View>
struct Held<std::span<const View>> {
  Held(const MakeBelieveDevice& device, std::span<const View> views) {
    for (const View& view : views) {
      if constexpr (std::is_same_v<View, BagLookup>)
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

MakeBelieveDevice& the_device() {
  static auto& device = *new MakeBelieveDevice();
  return device;
}

// The tensors among an operation's arguments, and whether the last, a beta or a flag, is not zero: then a
// product or a sum over rows adds to its result.
template <class... Args>
std::pair<std::vector<Tensor>, bool> counted_arguments(const Args&... args) {
  std::pair<std::vector<Tensor>, bool> result;
  const auto look = [&](const auto& arg) {
    if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, Tensor>) result.first.push_back(arg);
  };
  (look(args), ...);
  const auto last = std::get<sizeof...(Args) - 1>(std::tuple<const Args&...>(args...));
  if constexpr (std::is_arithmetic_v<std::decay_t<decltype(last)>>) result.second = last != 0;
  return result;
}

// An entry of a table of the processor, as one of the device: put on the queue of the stream.
template <auto Entry, const OpTable& (*Table)() = cpu_ops>
struct On;
template <class... Args, void (*OpTable::*Entry)(Stream&, Args...), const OpTable& (*Table)()>
struct On<Entry, Table> {
  static void call(Stream& stream, Args... args) {
    if (stream.mode() == Stream::Mode::Dry) return;
    auto* queue = static_cast<MakeBelieveQueue*>(stream.queue());
    check(queue != nullptr, "an operation of a device was given a stream of the host");
    static auto& counted = *new Counts::Operation(__PRETTY_FUNCTION__);
    const auto [tensors, adds] = counted_arguments(args...);
    Products::instance().meet(counted.name(), tensors);
    if (!counted.call(tensors, adds)) return;
    // Held, not copied: a closure of all that would be too large for a stream's queue.
    auto held = std::make_shared<std::tuple<Held<std::decay_t<Args>>...>>(
        Held<std::decay_t<Args>>(queue->device(), args)...);
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

// What the CUDA table takes of the queue's memory for operations of recommenders (ops/cuda/workspace.h).
void take_workspace(Stream& stream, size_t bytes) {
  stream.enqueue([queue = stream.queue(), bytes] { queue->workspace(bytes); });
}

// An entry that takes as much of the queue's memory as the CUDA table's, which Bytes(its arguments) says.
template <auto Entry, auto Bytes, const OpTable& (*Table)() = cpu_ops>
struct OnTaking;
template <class... Args, void (*OpTable::*Entry)(Stream&, Args...), auto Bytes, const OpTable& (*Table)()>
struct OnTaking<Entry, Bytes, Table> {
  static void call(Stream& stream, Args... args) {
    if (const size_t bytes = Bytes(args...); bytes > 0) take_workspace(stream, bytes);
    On<Entry, Table>::call(stream, args...);
  }
};

// Products, and sums over rows, which take no more.
constexpr auto kOfProducts = [](const auto&...) { return cuda::kProductWorkspace; };
template <bool Deterministic>
constexpr auto kOfAttention = [](Tensor, Tensor, Tensor, Tensor out, Tensor, const Attention& how) {
  if (!cuda::is_for_cudnn(how, out.dtype)) return size_t{0};
  return cuda::attention_workspace({how.batch, how.seq, how.heads, how.kv_heads, how.head_dim,
                                    how.lengths.data != nullptr, Deterministic});
};
constexpr auto kOfEmbedding = [](Tensor, Tensor, Tensor ids, Tensor, int64_t) {
  return cuda::embedding_workspace(ids.elements());
};

template <const OpTable& (*Table)() = cpu_ops>
void linear(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias, bool relu) {
  take_workspace(stream, cuda::kProductWorkspace);
  On<&OpTable::linear, Table>::call(stream, y, x, w, bias, relu);
}

void sort_lookups(Stream& stream, std::span<const LookupOrder> orders, std::span<const BagLookup> lookups) {
  std::vector<int64_t> keys;
  for (const BagLookup& lookup : lookups) keys.push_back(lookup.ids.elements());
  take_workspace(stream, cuda::sort_workspace(keys));
  On<&OpTable::sort_lookups>::call(stream, orders, lookups);
}

size_t update_workspace(std::span<const RowUpdate> updates, Tensor dy) {
  int64_t lookups = 0, widest = 0;
  for (const RowUpdate& update : updates) {
    lookups = std::max(lookups, update.order->row.elements());
    widest = std::max(widest, update.table.last_dim());
  }
  return cuda::update_workspace(static_cast<int64_t>(updates.size()), lookups, widest, size_of(dy.dtype));
}

// Entries that go over touched rows: (stream, dy, updates, and what else they take).
template <auto Entry>
struct OnRows;
template <class... Args, void (*OpTable::*Entry)(Stream&, Tensor, std::span<const RowUpdate>, Args...)>
struct OnRows<Entry> {
  static void call(Stream& stream, Tensor dy, std::span<const RowUpdate> updates, Args... args) {
    take_workspace(stream, update_workspace(updates, dy));
    On<Entry>::call(stream, dy, updates, args...);
  }
};

OpTable make_table(Device& device) {
  OpTable table = cpu_ops();
  table.name = "make-believe";
  table.device = &device;
  table.fill = On<&OpTable::fill>::call;
  table.copy = copy;
  table.convert = On<&OpTable::convert>::call;
  table.scale = On<&OpTable::scale>::call;
  table.add = On<&OpTable::add>::call;
  table.reduce = On<&OpTable::reduce>::call;
  table.fill_rows = On<&OpTable::fill_rows>::call;
  table.gemm = OnTaking<&OpTable::gemm, kOfProducts>::call;
  table.affine = OnTaking<&OpTable::affine, kOfProducts>::call;
  table.affine_add = OnTaking<&OpTable::affine_add, kOfProducts>::call;
  table.affine_gelu = OnTaking<&OpTable::affine_gelu, kOfProducts>::call;
  table.affine_backward_input = OnTaking<&OpTable::affine_backward_input, kOfProducts>::call;
  table.affine_backward_gelu = OnTaking<&OpTable::affine_backward_gelu, kOfProducts>::call;
  table.affine_backward_weight = OnTaking<&OpTable::affine_backward_weight, kOfProducts>::call;
  table.gelu = On<&OpTable::gelu>::call;
  table.gelu_backward = On<&OpTable::gelu_backward>::call;
  table.gelu_erf = On<&OpTable::gelu_erf>::call;
  table.gelu_erf_backward = On<&OpTable::gelu_erf_backward>::call;
  table.tanh = On<&OpTable::tanh>::call;
  table.tanh_backward = On<&OpTable::tanh_backward>::call;
  table.swiglu = On<&OpTable::swiglu>::call;
  table.swiglu_backward = On<&OpTable::swiglu_backward>::call;
  table.dropout = On<&OpTable::dropout>::call;
  table.dropout_add = On<&OpTable::dropout_add>::call;
  table.layer_norm = On<&OpTable::layer_norm>::call;
  table.layer_norm_backward = On<&OpTable::layer_norm_backward>::call;
  table.layer_norm_backward_add = On<&OpTable::layer_norm_backward_add>::call;
  table.layer_norm_backward_weight = OnTaking<&OpTable::layer_norm_backward_weight, kOfProducts>::call;
  table.layer_norm_backward_all = OnTaking<&OpTable::layer_norm_backward_all, kOfProducts>::call;
  table.rms_norm = On<&OpTable::rms_norm>::call;
  table.rms_norm_backward = On<&OpTable::rms_norm_backward>::call;
  table.rms_norm_backward_add = On<&OpTable::rms_norm_backward_add>::call;
  table.rms_norm_backward_weight = OnTaking<&OpTable::rms_norm_backward_weight, kOfProducts>::call;
  table.rms_norm_backward_all = OnTaking<&OpTable::rms_norm_backward_all, kOfProducts>::call;
  table.column_sum = OnTaking<&OpTable::column_sum, kOfProducts>::call;
  table.rotary = On<&OpTable::rotary>::call;
  table.embedding = On<&OpTable::embedding>::call;
  table.embedding_backward = OnTaking<&OpTable::embedding_backward, kOfEmbedding>::call;
  table.attention = On<&OpTable::attention>::call;
  table.attention_backward = OnTaking<&OpTable::attention_backward, kOfAttention<true>>::call;
  table.softmax_stats = On<&OpTable::softmax_stats>::call;
  table.softmax_rescale = On<&OpTable::softmax_rescale>::call;
  table.cross_entropy = On<&OpTable::cross_entropy>::call;
  table.cross_entropy_backward = On<&OpTable::cross_entropy_backward>::call;
  table.sum_squares = OnTaking<&OpTable::sum_squares, kOfProducts>::call;
  table.weighted_sum = OnTaking<&OpTable::weighted_sum, kOfProducts>::call;
  table.chunk_squares = On<&OpTable::chunk_squares>::call;
  table.exact_sum = OnTaking<&OpTable::exact_sum, kOfProducts>::call;
  table.adamw = On<&OpTable::adamw>::call;
  table.sgd = On<&OpTable::sgd>::call;
  table.adagrad = On<&OpTable::adagrad>::call;
  table.lamb_moments = On<&OpTable::lamb_moments>::call;
  table.lamb = On<&OpTable::lamb>::call;
  table.linear = linear<>;
  table.relu_backward = On<&OpTable::relu_backward>::call;
  table.embedding_bags = On<&OpTable::embedding_bags>::call;
  table.sort_lookups = sort_lookups;
  table.update_rows = OnRows<&OpTable::update_rows>::call;
  table.row_squares = OnRows<&OpTable::row_squares>::call;
  table.row_gradients = OnRows<&OpTable::row_gradients>::call;
  table.dot_interaction = On<&OpTable::dot_interaction>::call;
  table.dot_interaction_backward = On<&OpTable::dot_interaction_backward>::call;
  table.cross = On<&OpTable::cross>::call;
  table.cross_backward = On<&OpTable::cross_backward>::call;
  table.sigmoid = On<&OpTable::sigmoid>::call;
  table.click_loss = On<&OpTable::click_loss>::call;
  table.click_loss_backward = On<&OpTable::click_loss_backward>::call;
  table.copy_columns = On<&OpTable::copy_columns>::call;
  return table;
}

// With the products of another table of the processor.
template <const OpTable& (*Table)()>
void set_products(OpTable& table) {
  table.affine = OnTaking<&OpTable::affine, kOfProducts, Table>::call;
  table.affine_add = OnTaking<&OpTable::affine_add, kOfProducts, Table>::call;
  table.affine_gelu = OnTaking<&OpTable::affine_gelu, kOfProducts, Table>::call;
  table.affine_backward_input = OnTaking<&OpTable::affine_backward_input, kOfProducts, Table>::call;
  table.affine_backward_gelu = OnTaking<&OpTable::affine_backward_gelu, kOfProducts, Table>::call;
  table.affine_backward_weight = OnTaking<&OpTable::affine_backward_weight, kOfProducts, Table>::call;
}

OpTable make_tf32_table(Device& device) {
  OpTable table = make_table(device);
  table.name = "make-believe, tf32";
  set_products<tf32_ops>(table);
  table.gemm = OnTaking<&OpTable::gemm, kOfProducts, tf32_ops>::call;
  table.linear = linear<tf32_ops>;
  return table;
}

OpTable make_fp8_table(Device& device) {
  OpTable table = make_table(device);
  table.name = "make-believe, fp8";
  set_products<narrow_ops>(table);
  return table;
}

OpTable make_table_of(Device& device, const CudaTable& which) {
  OpTable table = which.fp8    ? make_fp8_table(device)
                  : which.tf32 ? make_tf32_table(device)
                               : make_table(device);
  if (which.deterministic) return table;
  table.name = "make-believe, in any order";
  table.attention_backward = OnTaking<&OpTable::attention_backward, kOfAttention<false>>::call;
  return table;
}

}  // namespace
}  // namespace trifold::test

extern "C" {

int64_t trifold_cuda_version() { return trifold::kCudaModuleVersion; }

int trifold_cuda_device_count() { return 1; }

// Tests may give it less.
size_t trifold_cuda_device_memory(int /*index*/) {
  const char* bytes = std::getenv("TRIFOLD_MAKE_BELIEVE_MEMORY");
  return bytes == nullptr ? trifold::test::the_device().memory().total : std::stoull(bytes);
}

const trifold::OpTable* trifold_cuda_ops(int /*index*/, const trifold::CudaTable& which) {
  static std::mutex mutex;
  static auto& tables = *new std::map<trifold::CudaTable, trifold::OpTable>();
  const std::lock_guard lock(mutex);
  const auto [made, is_new] = tables.try_emplace(which);
  if (is_new) made->second = trifold::test::make_table_of(trifold::test::the_device(), which);
  return &made->second;
}

trifold::ProductTuning* trifold_cuda_products(int /*index*/) { return &trifold::test::Products::instance(); }

// For tests alone.
int64_t make_believe_products_measured() { return trifold::test::Products::instance().measured(); }
int64_t make_believe_graph_launches() { return trifold::test::the_device().graph_launches(); }
void make_believe_asked(int64_t* times, size_t* device, size_t* shared) {
  const auto asked = trifold::test::the_device().asked();
  *times = asked.times;
  *device = asked.device;
  *shared = asked.shared;
}
// Asked::workspaces, captures and urgent.
void make_believe_made(int64_t* workspaces, int64_t* captures, int64_t* urgent) {
  const auto asked = trifold::test::the_device().asked();
  *workspaces = asked.workspaces;
  *captures = asked.captures;
  *urgent = asked.urgent;
}
void make_believe_count_alone(bool alone) { trifold::test::Counts::instance().count_alone(alone); }
// The text is good until the next call.
const char* make_believe_counts() {
  static std::string text;
  text = trifold::test::Counts::instance().take();
  return text.c_str();
}
void make_believe_refuse_capture(int64_t capture, int64_t piece) {
  trifold::test::MakeBelieveDevice::refuse_capture(capture, piece);
}
}
