#include "run/terms.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/collective.h"
#include "checkpoint/reader.h"
#include "comm/shared_error.h"
#include "config/command_line/command_line.h"
#include "config/commands/validate.h"
#include "core/read_json.h"
#include "files/crc32.h"
#include "files/mapped_file.h"
#include "models/adapters/peft_folder.h"
#include "models/folders/open_model.h"
#include "run/rank_text.h"
#include "text/blend.h"

namespace trifold {

namespace {

// The identity that the linker gave the program, a checksum of its contents, as hexadecimal digits; empty if the linker
// gave none.
std::string build_id() {
  std::string id;
  const auto look = [](dl_phdr_info* object, size_t, void* result) {
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& header = object->dlpi_phdr[i];
      if (header.p_type != PT_NOTE) continue;
      const auto* at = std::bit_cast<const unsigned char*>(object->dlpi_addr + header.p_vaddr);
      const unsigned char* end = at + header.p_memsz;
      while (static_cast<size_t>(end - at) >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        std::memcpy(&note, at, sizeof(note));
        const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
        const unsigned char* name = at + sizeof(note);
        const unsigned char* content = name + padded(note.n_namesz);
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
          for (size_t byte = 0; byte < note.n_descsz; ++byte)
            *static_cast<std::string*>(result) += fmt::format("{:02x}", content[byte]);
        at = content + padded(note.n_descsz);
      }
    }
    return 1;  // the first object is the program itself
  };
  dl_iterate_phdr(look, &id);
  return id;
}

// A digest of names and values with their ends, so that text moved from one to another changes it.
int64_t digest(std::span<const Term> terms) {
  uint32_t crc = 0;
  uint32_t bytes = 0;
  for (const Term& term : terms)
    for (const std::string* text : {&term.name, &term.value}) {
      crc = crc32_of(crc, text->c_str(), text->size() + 1);
      bytes += static_cast<uint32_t>(text->size() + 1);
    }
  return static_cast<int64_t>(uint64_t{crc} << 32 | bytes);
}

bool all_alike(Communicator& world, int64_t mine) {
  std::vector<int64_t> all(static_cast<size_t>(world.size()));
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  world.all_gather({all.data(), DType::I64, {world.size()}}, {&mine, DType::I64, {1}}, stream);
  return std::all_of(all.begin(), all.end(), [&](int64_t other) { return other == all[0]; });
}

// The ranks' values of a term: by value its first shown form, and the ranks that have it.
struct Holders {
  std::string shown;
  std::vector<int> ranks;
};

std::string difference(const std::string& name, const std::map<std::string, Holders>& by_value) {
  std::vector<const Holders*> groups;
  for (const auto& [value, holders] : by_value) groups.push_back(&holders);
  std::sort(groups.begin(), groups.end(),
            [](const Holders* a, const Holders* b) { return a->ranks.front() < b->ranks.front(); });
  std::string text = name + " is ";
  for (size_t i = 0; i < groups.size(); ++i)
    text += fmt::format("{}{} on {}",
                        i == 0                   ? ""
                        : i + 1 == groups.size() ? " and "
                                                 : ", ",
                        groups[i]->shown, ranks_text(groups[i]->ranks));
  return text;
}

std::string to_text(std::span<const Term> terms) {
  nlohmann::json list = nlohmann::json::array();
  for (const Term& term : terms) list.push_back({term.name, term.value, term.shown});
  return json_text(list);
}

// Terms in the order of rank 0; terms that rank 0 lacks are last.
std::vector<std::string> differences(const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  std::map<std::string, std::map<std::string, Holders>> by_term;
  for (size_t rank = 0; rank < texts.size(); ++rank)
    for (const auto& item : nlohmann::json::parse(texts[rank])) {
      const std::string name = item[0], value = item[1], shown = item[2];
      if (by_term.count(name) == 0) names.push_back(name);
      Holders& holders = by_term[name][value];
      if (holders.ranks.empty()) holders.shown = !shown.empty() ? shown : value.empty() ? "not given" : value;
      holders.ranks.push_back(static_cast<int>(rank));
    }
  std::vector<std::string> list;
  for (const std::string& name : names) {
    std::vector<int> without;
    for (size_t rank = 0; rank < texts.size(); ++rank) without.push_back(static_cast<int>(rank));
    for (const auto& [value, holders] : by_term[name])
      for (const int rank : holders.ranks) std::erase(without, rank);
    if (!without.empty()) by_term[name][""] = {"absent", without};
    if (by_term[name].size() > 1) list.push_back(difference(name, by_term[name]));
  }
  return list;
}

}  // namespace

RunTerms::RunTerms() {
  add({"the program", version_text() + " " + build_id(),
       fmt::format("{} (build {:.12})", version_text(), build_id())});
}

void RunTerms::add(const OptionTable& table) {
  for (const Option& option : table.options())
    if (const std::string value = value_text(option); !option.local)
      add({"--" + option.name, value});
    else if (option.common)
      add({"--" + option.name, value.empty() ? "" : "given", value});
}

void RunTerms::add(const std::string& option, const DataFingerprint& data) {
  add({"the number of files of " + option, std::to_string(data.parts.size())});
  for (size_t i = 0; i < data.parts.size(); ++i) {
    const DataPart& part = data.parts[i];
    add({fmt::format("file {} of {}", i + 1, option),
         fmt::format("{} {} {}", part.files, part.bytes, part.crc),
         fmt::format("{} ({} bytes, checksum {:08x})", part.name, part.bytes, part.crc)});
  }
}

void RunTerms::add(const DataConfig& data, const DataFingerprint& files) {
  if (!data.arrays.empty()) return add("--arrays", files);
  const std::pair<const char*, const std::vector<std::string>*> blends[] = {
      {"--data-path", &data.data_path},
      {"--train-data-path", &data.train_data_path},
      {"--valid-data-path", &data.valid_data_path}};
  for (const auto& [option, words] : blends)
    if (!words->empty())
      if (const DataPaths paths = parse_data_paths(*words); paths.weights)
        add({fmt::format("the weights of {}", option), fmt::format("{}", fmt::join(*paths.weights, " "))});
  add(data.mock_data ? "--mock-data" : data.data_path.empty() ? "--train-data-path" : "--data-path", files);
}

void RunTerms::add_file(const std::string& option, const std::string& path) {
  const MappedFile file(path);
  const uint32_t crc = crc32_of(0, file.bytes().data(), file.bytes().size());
  add({"the file of " + option, fmt::format("{} {:08x}", file.bytes().size(), crc),
       fmt::format("{} ({} bytes, checksum {:08x})", path, file.bytes().size(), crc)});
}

void RunTerms::add_checkpoint(const std::string& path) {
  if (is_peft_folder(path) || is_hugging_face_folder(path)) {
    const std::string digest = open_weights(path).manifest().save_id;
    return add({"the model of --load", digest,
                fmt::format("{} (checksum of its description and of parts of its files {})", path, digest)});
  }
  const CheckpointReader reader(path);
  const MappedFile manifest((reader.directory() / kManifestName).string());
  const uint32_t crc = crc32_of(0, manifest.bytes().data(), manifest.bytes().size());
  add({"the checkpoint of --load", fmt::format("{:08x}", crc),
       fmt::format("{} (manifest checksum {:08x})", reader.directory().string(), crc)});
}

void agree_on(Communicator& world, const RunTerms& mine) {
  if (world.size() == 1 || all_alike(world, digest(mine.terms()))) return;
  std::vector<std::string> list = differences(gather_texts(
      world, "comparing the options and data of the ranks", [&] { return to_text(mine.terms()); }));
  for (std::string& line : list) line += ": give every rank the same";
  try {
    throw_problems(list);
  } catch (const Error& error) {
    throw SharedError(error.what(), ErrorKind::BadInput, world.size(), world.rank() == 0);
  }
}

}  // namespace trifold
