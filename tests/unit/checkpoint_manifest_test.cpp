#include "checkpoint/manifest.h"

#include <fstream>

#include "checkpoint/manifest_file.h"
#include "checkpoint_bench.h"

namespace trifold {
namespace {

using test::bad_input_of;
using test::has;
namespace fs = std::filesystem;

Manifest sample() {
  Manifest manifest;
  manifest.save_id = "0123456789abcdef";
  manifest.meta = test::meta_of(10);
  manifest.files = {{"shard_00000.h5", FileInfo::Role::Shard, 1000, 0xdeadbeef, 5},
                    {"view.h5", FileInfo::Role::View, 5, 1, 1}};
  manifest.tensors = {
      {"param/a", DType::F32, {4, 3}, {{{{0, 0}, {2, 3}}, 0, 100, 7, {}}, {{{2, 0}, {2, 3}}, 0, 124, 8, {}}}},
      {"param/b", DType::I64, {}, {{{{}, {}}, 0, 200, 9, {}}}}};
  return manifest;
}

TEST(Manifest, ComesBackAsItWas) {
  const Manifest before = sample();
  const Manifest after = parse_manifest(to_text(before), "here");
  EXPECT_EQ(to_text(after), to_text(before));
  EXPECT_EQ(after.meta.consumed_samples, 320);
  EXPECT_EQ(after.meta.config["lr"], 0.1);
  EXPECT_EQ(after.tensors[0].pieces[1].rect, (Rect{{2, 0}, {2, 3}}));
  EXPECT_EQ(after.files[0].crc, 0xdeadbeef);
}

// Every bit of the text counts, including those of the CRC and of the last brackets.
TEST(Manifest, EveryFlippedBitIsFound) {
  const std::string text = to_text(sample());
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW(parse_manifest(damaged, "here"), Error) << bit;
  }
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_THROW(parse_manifest(std::string_view(text).substr(0, length), "here"), Error) << length;
  EXPECT_TRUE(has(bad_input_of([&] { parse_manifest(text + " ", "d/manifest.json"); }),
                  "d/manifest.json cannot be used"));
}

// A manifest that says nonsense with a right CRC (written by another program, or edited and re-signed).
TEST(Manifest, RefusesNonsense) {
  const auto refusal = [](const std::function<void(Manifest&)>& edit) {
    Manifest manifest = sample();
    edit(manifest);
    return bad_input_of([&] { parse_manifest(to_text(manifest), "here"); });
  };
  EXPECT_TRUE(has(refusal([](Manifest& m) { m.tensors[0].pieces.pop_back(); }), "no box holds [2:4, 0:3]"));
  EXPECT_TRUE(has(refusal([](Manifest& m) { m.tensors[0].pieces[1].rect.offset[0] = 1; }), "overlap"));
  EXPECT_TRUE(
      has(refusal([](Manifest& m) { m.tensors[0].pieces[1].rect.offset[0] = INT64_MAX; }), "outside"));
  EXPECT_TRUE(has(refusal([](Manifest& m) { m.tensors[0].pieces[0].file = 1; }), "is not a shard"));
  EXPECT_TRUE(
      has(refusal([](Manifest& m) { m.tensors[0].pieces[0].file = -1; }), "file is -1; a whole number"));
  EXPECT_TRUE(has(refusal([](Manifest& m) { m.tensors[0].pieces[0].byte_offset = 990; }), "does not fit"));
  EXPECT_TRUE(has(refusal([](Manifest& m) { m.tensors[0].global = {INT64_MAX, 4}; }), "an impossible shape"));
  EXPECT_TRUE(has(refusal([](Manifest& m) { m.tensors[0].global = {0, 4}; }), "an impossible shape"));
  EXPECT_TRUE(has(refusal([](Manifest& m) { m.files[0].name = "../shard.h5"; }), "plain name"));
  EXPECT_TRUE(has(refusal([](Manifest& m) { m.tensors[1].name = "param/a"; }), "listed twice"));
  EXPECT_TRUE(has(refusal([](Manifest& m) { m.tensors[1].name = "param/a/b"; }), "folder"));
  EXPECT_TRUE(has(refusal([](Manifest& m) { m.tensors[1].name = "param//b"; }),
                  "not a valid name for a stored tensor"));
}

TEST(Manifest, RefusesOtherVersionsAndMissingFields) {
  const auto resigned = [](std::string from, const std::string& to) {
    std::string text = to_text(sample());
    text.replace(text.find(from), from.size(), to);
    text.resize(text.size() - 12);
    return text + fmt::format("{:08x}", crc_of_memory(text.data(), text.size())) + "\"\n}\n";
  };
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return bad_input_of([&] { parse_manifest(resigned(from, to), "here"); });
  };
  EXPECT_NO_THROW(parse_manifest(resigned("hidden_size", "hidden-size"), "here"));  // re-signing works
  EXPECT_TRUE(
      has(refusal("\"version\": 2", "\"version\": 3"), "its version is 3; this program reads version 2"));
  EXPECT_TRUE(has(refusal("\"step\"", "\"stop\""), "step"));
  EXPECT_TRUE(has(refusal("trifold-checkpoint", "another-checkpoint"), "its format"));
  EXPECT_TRUE(has(refusal("\"f32\"", "\"f31\""), "'f31' is not an element type"));
  EXPECT_TRUE(has(refusal("\"step\": 10", "\"step\": {"), "not JSON"));
  EXPECT_TRUE(has(refusal("deadbeef", "DEADBEEF"), "not a CRC32"));
}

std::string signed_text(std::string body) {
  body += ",\n\"crc32\": \"";
  return body + fmt::format("{:08x}", crc_of_memory(body.data(), body.size())) + "\"\n}\n";
}

TEST(Manifest, DepthAndWrongTypesAreRefused) {
  const auto refusal = [](const std::string& text) {
    return bad_input_of([&] { parse_manifest(text, "here"); });
  };
  EXPECT_TRUE(has(refusal(signed_text("{\"format\": " + std::string(40000, '['))), "nested more than 32"));
  const std::string good = to_text(sample());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good.substr(0, good.rfind(",\n\"crc32\""));
    text.replace(text.find(from), from.size(), to);
    return refusal(signed_text(text));
  };
  EXPECT_TRUE(has(with("\"step\": 10", "\"step\": 1e3"), "step is 1000.0; a whole number of at least 0"));
  EXPECT_TRUE(has(with("\"file\":0", "\"file\":72057594037927936"), "pieces[0].file is 72057594037927936"));
  EXPECT_TRUE(has(with("\"bytes\":1000", "\"bytes\":null"), "files[0].bytes is null"));
  EXPECT_TRUE(has(with("\"state\": ", "\"state\": 3, \"x\": "), "state is 3; an object is needed"));
}

// Damaged files, and files that are not manifests, are detected before they are loaded into memory.
TEST(Manifest, AHugeFileIsRefusedByItsEnds) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "manifest.json";
  std::ofstream(path) << to_text(sample());
  EXPECT_EQ(read_manifest(path).tensors.size(), 2U);
  fs::resize_file(path, uintmax_t{900} << 20);
  EXPECT_TRUE(has(bad_input_of([&] { read_manifest(path); }), "its end is missing"));
  fs::resize_file(path, uintmax_t{2} << 30);
  EXPECT_TRUE(has(bad_input_of([&] { read_manifest(path); }), "more than the 1073741824"));
}

TEST(Manifest, NamesOfDatasets) {
  EXPECT_EQ(dataset_path("param/w", {{0, 128}, {4, 4}}), "/param/w/at_0_128");
  EXPECT_EQ(dataset_path("loss_scale", {}), "/loss_scale/at");
  for (const char* bad : {"", "/a", "a/", "a//b", "a/../b", ".", "a b", "a%b", "\xc3\xa4"})
    EXPECT_THROW(check_tensor_name(bad), Error) << bad;
  EXPECT_NO_THROW(check_tensor_name("param/block.3.qkv-w_1"));
}

}  // namespace
}  // namespace trifold
