// .idx of an indexed data set. The first two bytes give the size of the .bin file; if the pair is accepted every token
// is read.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "text/indexed_dataset.h"

namespace {

const std::string& prefix() {
  static const std::string kPrefix = [] {
    const std::filesystem::path memory = "/dev/shm";
    const auto folder = std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
    return (folder / ("trifold_fuzz_" + std::to_string(getpid()))).string();
  }();
  return kPrefix;
}

void write(const std::string& suffix, const char* data, size_t size) {
  std::ofstream(prefix() + suffix, std::ios::binary | std::ios::trunc)
      .write(data, static_cast<std::streamsize>(size));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t bytes = data[0] + size_t{256} * data[1];
  const std::string tokens(bytes, '\1');
  write(".bin", tokens.data(), tokens.size());
  write(".idx", reinterpret_cast<const char*>(data) + 2, size - 2);
  try {
    const trifold::IndexedDataset set(prefix());
    std::vector<int32_t> read;
    for (int64_t sequence = 0; sequence < set.sequences(); ++sequence) {
      read.resize(static_cast<size_t>(set.length(sequence)));
      set.read(sequence, 0, read, int64_t{1} << 31);
    }
    for (int64_t document = 0; document <= set.documents(); ++document)
      if (set.document_index(document) > set.sequences()) __builtin_trap();
    set.check_tokens(2);
  } catch (const trifold::Error& error) {
    if (error.kind() != trifold::ErrorKind::BadInput) throw;  // ends the fuzzer
  }
  return 0;
}
