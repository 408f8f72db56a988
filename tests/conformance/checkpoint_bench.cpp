// Measures how fast checkpoints are written and read: `checkpoint_bench FOLDER [megabytes] [ranks] [rounds]`. FOLDER
// must be on the disk in question; files created in it are removed.
//
// Every round writes the same bytes with dd (conv=fsync) and as a checkpoint, reads them with dd and as a
// checkpoint, after dropping the files from the page cache, and copies the state in memory as --async-save does.
// Prints the rates of each, and the medians of the rounds' ratios.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <vector>

#include "checkpoint/background_saver.h"
#include "checkpoint/reader.h"
#include "core/random.h"
#include "support/ranks.h"

namespace {

using namespace trifold;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

template <class Body>
double seconds(Body&& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// As many tensors as a model of that size has: a few large ones, all of them in one part a rank.
class State {
 public:
  State(int64_t megabytes, int rank, int ranks) {
    constexpr int64_t kTensors = 12, kColumns = 1024;
    const int64_t rows = megabytes * 1'000'000 / kTensors / kColumns / 4 / ranks * ranks;
    for (int64_t i = 0; i < kTensors; ++i) {
      NamedTensor tensor;
      tensor.spec.name = fmt::format("param/w{}", i);
      tensor.spec.global = {rows, kColumns};
      tensor.spec.local = even_part(tensor.spec.global, 0, rank, ranks);
      buffers_.emplace_back(static_cast<size_t>(tensor.spec.local.elements()) * 4);
      tensor.data = buffers_.back().tensor(DType::F32, tensor.spec.local.extent);
      for (int64_t e = 0; e < tensor.data.elements(); ++e)  // no disk can make less of it
        tensor.data.as<float>()[e] = static_cast<float>((e * 2654435761 + i) % 16777213);
      tensors_.push_back(std::move(tensor));
    }
  }
  std::span<const NamedTensor> all() const { return tensors_; }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const NamedTensor& tensor : tensors_) sum += static_cast<int64_t>(tensor.data.bytes());
    return sum;
  }

 private:
  std::vector<Buffer> buffers_;
  std::vector<NamedTensor> tensors_;
};

void shell(const std::string& command) {
  const int status = std::system(command.c_str());
  check(status == 0, "'{}' ended with status {}", command, WEXITSTATUS(status));
}

// The next reader has to go to the disk.
void forget(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int file = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    fsync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
}

struct Times {
  double dd_write, save, dd_read, load, copy, stall;
};

// The time of all ranks, on rank 0.
template <class Body>
double together(Communicator& world, Body&& body) {
  world.barrier();
  return seconds([&] {
    body();
    world.barrier();
  });
}

Times measure(Communicator& world, const State& state, const fs::path& folder) {
  Times times{};
  const bool first = world.rank() == 0;
  const MeshCoords coords{{Axis::Tp, world.rank()}};
  CheckpointMeta meta;
  meta.step = 1;
  const auto alone = [&](double& time, const std::string& command) {
    if (first) time = seconds([&] { shell(command); });
    world.barrier();
  };
  const std::string plain = (folder / "plain").string(), root = (folder / "run").string();
  times.save = together(world, [&] { save_checkpoint(root, meta, state.all(), world, coords); });
  // The same bytes, which are in the file cache now: a disk may make less of zeros.
  alone(times.dd_write,
        fmt::format("cat {}/step_*/shard_* | dd of={} bs=1M iflag=fullblock conv=fsync status=none", root,
                    plain));
  if (first) forget(folder);
  alone(times.dd_read, fmt::format("dd if={} of=/dev/null bs=1M status=none", plain));
  // Once more: else the file cache would take pages for these files that nobody used before, which a host of
  // virtual machines first has to find, and that can take several times as long as reading.
  if (first) forget(folder);
  world.barrier();
  times.load = together(world, [&] { CheckpointReader(root).load(state.all()); });
  if (first) fs::remove_all(root);
  if (first) fs::remove(plain);

  BackgroundSaver saver(world);
  const auto stall = [&] {
    const double time = together(world, [&] { saver.start(root, meta, state.all(), coords, {}); });
    saver.finish();
    return time;
  };
  stall();  // makes the buffer
  times.stall = stall();
  std::vector<Buffer> copies;
  for (const NamedTensor& tensor : state.all()) copies.emplace_back(tensor.data.bytes());
  for (int i = 0; i < 2; ++i)  // the first makes the buffers
    times.copy = together(world, [&] {
      for (size_t t = 0; t < copies.size(); ++t)
        std::memcpy(copies[t].data(), state.all()[t].data.data, copies[t].bytes());
    });
  if (first) fs::remove_all(root);
  world.barrier();
  return times;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: checkpoint_bench FOLDER [megabytes] [ranks] [rounds]\n";
    return 2;
  }
  const auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
  const int megabytes = number(2, 1000), ranks = number(3, 1), rounds = number(4, 3);
  const fs::path folder = fs::path(argv[1]) / ("checkpoint_bench_" + random_id());
  fs::create_directories(folder);
  std::vector<double> write, read, stall;
  test::run_ranks(
      ranks,
      [&](Communicator& world) {
        const State state(megabytes, world.rank(), ranks);
        const int64_t bytes = state.bytes() * ranks;
        for (int round = 0; round < rounds; ++round) {
          const Times t = measure(world, state, folder);
          if (world.rank() != 0) continue;
          const auto rate = [&](double time) { return static_cast<double>(bytes) / time / 1e9; };
          std::cout << fmt::format(
                           "{:.2f} GB, {} ranks, GB/s: dd conv=fsync {:.2f}, save {:.2f}; dd read {:.2f}, "
                           "load {:.2f}; copy {:.2f}, stall of --async-save {:.2f}\n",
                           static_cast<double>(bytes) / 1e9, ranks, rate(t.dd_write), rate(t.save),
                           rate(t.dd_read), rate(t.load), rate(t.copy), rate(t.stall))
                    << std::flush;
          write.push_back(t.dd_write / t.save);
          read.push_back(t.dd_read / t.load);
          stall.push_back(t.stall / t.copy);
        }
      },
      {std::chrono::minutes(10), std::chrono::minutes(10)});
  fs::remove_all(folder);
  std::cout << fmt::format(
      "medians of {} rounds: save {:.2f} of dd (at least 0.80), load {:.2f} of dd (at least 0.80), stall "
      "{:.2f} copies (at most 1.50)\n",
      rounds, median(write), median(read), median(stall));
}
