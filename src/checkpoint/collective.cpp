#include "checkpoint/collective.h"

#include <algorithm>
#include <cstring>

#include "comm/shared_error.h"

namespace trifold {

namespace {

// The first byte of a rank's message is the kind of the rest.
constexpr char kDone = 'd';
constexpr char kFailed = 'f';
constexpr char kBadInput = 'b';

std::string outcome_of(FunctionRef<std::string()> body) {
  try {
    return kDone + body();
  } catch (const Error& error) {
    return (error.kind() == ErrorKind::BadInput ? kBadInput : kFailed) + std::string(error.what());
  } catch (const std::exception& error) {
    return kFailed + std::string(error.what());
  }
}

std::vector<std::string> all_gather(Communicator& world, const std::string& mine) {
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  const auto ranks = static_cast<size_t>(world.size());
  std::vector<int64_t> sizes(ranks);
  auto my_size = static_cast<int64_t>(mine.size());
  world.all_gather({sizes.data(), DType::I64, {world.size()}}, {&my_size, DType::I64, {1}}, stream);
  // All parts are padded to the longest.
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = mine;
  padded.resize(static_cast<size_t>(most));
  std::string all(ranks * static_cast<size_t>(most), '\0');
  world.all_gather({all.data(), DType::U8, {world.size() * most}}, {padded.data(), DType::U8, {most}},
                   stream);
  stream.synchronize();
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < ranks; ++rank)
    texts.push_back(all.substr(rank * static_cast<size_t>(most), static_cast<size_t>(sizes[rank])));
  return texts;
}

}  // namespace

std::vector<std::string> gather_texts(Communicator& world, const std::string& doing,
                                      FunctionRef<std::string()> body) {
  std::vector<std::string> texts = all_gather(world, outcome_of(body));
  std::string failures;
  bool all_bad_input = true;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const char outcome = texts[rank].front();
    texts[rank].erase(0, 1);
    if (outcome == kDone) continue;
    // Absent ranks repeat what this one says (comm/absent_comm.h).
    if (world.backend() == "absent" && static_cast<int>(rank) != world.rank()) continue;
    all_bad_input = all_bad_input && outcome == kBadInput;
    failures += fmt::format("{}rank {}: {}", failures.empty() ? "" : "; ", rank, texts[rank]);
  }
  if (!failures.empty())
    throw SharedError(fmt::format("{} failed: {}", doing, failures),
                      all_bad_input ? ErrorKind::BadInput : ErrorKind::Failure, world.size(),
                      world.rank() == 0);
  return texts;
}

}  // namespace trifold
