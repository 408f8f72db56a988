#include "comm/mpi_module.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/module.h"

namespace trifold::test {
namespace {

namespace fs = std::filesystem;

// Sets what a launcher would set, and nothing else of the kind, until it goes away.
class LaunchedBy {
 public:
  explicit LaunchedBy(const std::map<std::string, std::string>& set) {
    for (const char* name :
         {"PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_PROCID",
          "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "TRIFOLD_MODULE_PATH"}) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
      touched_.push_back(name);
    }
    for (const auto& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
  }
  ~LaunchedBy() {
    for (const std::string& name : touched_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  LaunchedBy(const LaunchedBy&) = delete;
  LaunchedBy& operator=(const LaunchedBy&) = delete;

 private:
  std::vector<std::string> touched_;
  std::map<std::string, std::string> before_;
};

std::optional<int> size_when(const std::map<std::string, std::string>& set) {
  const LaunchedBy launcher(set);
  return mpi_launch_size();
}

TEST(MpiModule, LaunchersAreRecognisedByTheirEnvironment) {
  EXPECT_EQ(size_when({}), std::nullopt);
  EXPECT_EQ(size_when({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}), 4);               // MPICH, Intel MPI
  EXPECT_EQ(size_when({{"OMPI_COMM_WORLD_SIZE", "8"}, {"PMIX_RANK", "0"}}), 8);  // Open MPI
  EXPECT_EQ(size_when({{"PMI_SIZE", "1"}}), 1);
  EXPECT_EQ(size_when({{"PMIX_RANK", "0"}}), 0);
  EXPECT_EQ(size_when({{"PMI_SIZE", "many"}}), std::nullopt);
}

TEST(MpiModule, SrunIsALauncherButABatchScriptIsNot) {
  EXPECT_EQ(size_when({{"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}), 2);
  EXPECT_EQ(size_when({{"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}}), 2);
  EXPECT_EQ(size_when({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}), std::nullopt);
  EXPECT_EQ(size_when({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "1"}}), std::nullopt);
}

TEST(MpiModule, FoldersComeFromTheEnvironmentThenFromTheProgram) {
  const std::map<std::string, std::string> set{{"TRIFOLD_MODULE_PATH", "/opt/a::/opt/b"}};
  const LaunchedBy launcher(set);
  const auto folders = module_folders();
  const fs::path home = fs::read_symlink("/proc/self/exe").parent_path();
  EXPECT_EQ(folders, (std::vector<fs::path>{"/opt/a", "/opt/b", home, home.parent_path() / "lib",
                                            home.parent_path() / "lib" / "trifold"}));
}

std::string connect_error(const fs::path& folder) {
  try {
    connect_mpi_from(std::vector<fs::path>{folder}, std::chrono::milliseconds(1000));
  } catch (const Error& error) {
    return error.what();
  }
  return "connected";
}

TEST(MpiModule, AMissingModuleNamesTheSearchedFoldersAndThePackage) {
  const LaunchedBy launcher({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}});
  const std::string text = connect_error("/no/such/folder");
  for (const char* part :
       {"started this process as one of 4 ranks", "/no/such/folder/trifold_mpi.so: there is no such file",
        "apt-get install mpich", "TRIFOLD_MPI=ON", "TRIFOLD_MODULE_PATH", "--ranks"})
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
}

TEST(MpiModule, AFileThatIsNoModuleIsNamedWithTheReason) {
  const fs::path folder = fs::path(::testing::TempDir()) / "trifold_mpi_module_test";
  fs::create_directories(folder);
  std::ofstream(folder / kMpiModuleFile) << "this is not a library";
  const std::string text = connect_error(folder);
  fs::remove_all(folder);
  EXPECT_NE(text.find("cannot be loaded:\n  " + (folder / kMpiModuleFile).string() + ": "), std::string::npos)
      << text;
}

}  // namespace
}  // namespace trifold::test
