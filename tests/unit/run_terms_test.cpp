// Ranks with different options or data detect it, and each of them reports what differs and where.
#include "run/terms.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>

#include "config/commands/option_tables.h"
#include "run/rank_text.h"
#include "support/training.h"

namespace trifold::test {
namespace {

// The error message on each of four ranks when rank 2 has another configuration.
std::array<std::string, 4> differences_of(const std::function<void(PretrainConfig&)>& change,
                                          const std::function<void(RunTerms&)>& more = {}) {
  std::array<std::string, 4> texts;
  run_on_ranks(on_mesh(small_run(), 4).mesh, [&](Communicator& world) {
    PretrainConfig config = on_mesh(small_run(), 4);
    RunTerms terms;
    if (world.rank() == 2 && change) change(config);
    terms.add(options_of(config));
    if (world.rank() == 2 && more) more(terms);
    try {
      agree_on(world, terms);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      texts[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  return texts;
}

void expect_difference(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(RunTerms, EqualRanksAgree) { EXPECT_EQ(differences_of({})[0], ""); }

TEST(RunTerms, DifferencesAreListedByOptionAndRank) {
  const std::string text = differences_of([](PretrainConfig& config) {
    config.lr.lr = 0.5;
    config.seed = 7;
    config.batch.exit_interval = 3;
    config.precision.bf16 = true;
  })[0];
  expect_difference(text, "4 problems:");
  expect_difference(text, "--lr is 0.003 on ranks 0, 1 and 3 and 0.5 on rank 2: give every rank the same");
  expect_difference(text, "--seed is 1234 on ranks 0, 1 and 3 and 7 on rank 2");
  expect_difference(text, "--exit-interval is not given on ranks 0, 1 and 3 and 3 on rank 2");
  expect_difference(text, "--bf16 is false on ranks 0, 1 and 3 and true on rank 2");
}

TEST(RunTerms, OptionsOfAHostMayDiffer) {
  EXPECT_EQ(differences_of([](PretrainConfig& config) {
              config.log.log_json = "/elsewhere";
              config.mesh.threads_per_rank = 3;
              config.zero.offload = Offload::parse("/scratch");
              config.data.data_path = {"/elsewhere/text"};
            })[0],
            "");
}

TEST(RunTerms, AFolderOfAHostThatOnlySomeGive) {
  const auto with_folder = [](const char* folder) {
    return [folder](PretrainConfig& config) { config.mesh.cpu_offloading_folder = folder; };
  };
  expect_difference(differences_of(with_folder("/scratch"))[0],
                    "--cpu-offloading-folder is not given on ranks 0, 1 and 3 and /scratch on rank 2");
}

TEST(RunTerms, ATermThatOnlySomeHave) {
  expect_difference(differences_of({},
                                   [](RunTerms& terms) {
                                     terms.add({"the weights of --data-path", "0.5 0.5"});
                                   })[0],
                    "the weights of --data-path is absent on ranks 0, 1 and 3 and 0.5 0.5 on rank 2");
}

// Files of equal names and sizes.
TEST(RunTerms, DataAreComparedByContent) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "run_terms";
  std::array<std::string, 3> files;
  for (size_t i = 0; i < 3; ++i) {
    std::filesystem::create_directories(folder / std::to_string(i));
    files[i] = folder / std::to_string(i) / "text.txt";
    std::ofstream(files[i]) << (i == 2 ? "abd" : "abc");
  }
  std::array<std::string, 3> texts;
  run_on_ranks(on_mesh(small_run(), 3).mesh, [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    DataConfig data;
    data.data_path = {files[rank]};
    RunTerms terms;
    terms.add(data, fingerprint_of(data));
    try {
      agree_on(world, terms);
    } catch (const Error& error) {
      texts[rank] = error.what();
    }
  });
  std::filesystem::remove_all(folder);
  expect_difference(texts[0], "file 1 of --data-path is " + files[0] + " (3 bytes, checksum ");
  expect_difference(texts[0], ") on ranks 0 and 1 and " + files[2] + " (3 bytes, checksum ");
  expect_difference(texts[0], " on rank 2");
}

TEST(RunTerms, FilesAreComparedByContent) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "run_terms_files";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "a.json") << "{}";
  std::ofstream(folder / "b.json") << "[]";
  std::ofstream(folder / "c.json") << "{}";
  const auto compare = [&](const char* others) {
    std::string text;
    run_on_ranks(on_mesh(small_run(), 2).mesh, [&](Communicator& world) {
      RunTerms terms;
      terms.add_file("--schedule-costs", folder / (world.rank() == 0 ? "a.json" : others));
      try {
        agree_on(world, terms);
      } catch (const Error& error) {
        if (world.rank() == 0) text = error.what();
      }
    });
    return text;
  };
  EXPECT_EQ(compare("c.json"), "");
  expect_difference(compare("b.json"), "the file of --schedule-costs is " + (folder / "a.json").string());
  std::filesystem::remove_all(folder);
}

TEST(RunTerms, RanksAreNamedInRuns) {
  EXPECT_EQ(ranks_text(std::array{7}), "rank 7");
  EXPECT_EQ(ranks_text(std::array{0, 1, 2, 3, 5, 8, 9}), "ranks 0-3, 5, 8 and 9");
}

}  // namespace
}  // namespace trifold::test
