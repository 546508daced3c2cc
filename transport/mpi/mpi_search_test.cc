#include "transport/mpi/mpi_search.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace hccl_like {
namespace {

class MpiSearch : public ::testing::Test {
 protected:
  ~MpiSearch() override { std::filesystem::remove_all(root_); }
  // An empty file, and the folders above it; its path.
  std::string file(const std::string& name) {
    const std::filesystem::path path = root_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream{path};
    return path;
  }

  MpiSurroundings surroundings() {
    return {[this](const char* name) {
              const auto found = variables_.find(name);
              return found == variables_.end() ? nullptr : found->second.c_str();
            },
            launchers_};
  }

  std::map<std::string, std::string> variables_;
  std::vector<std::string> launchers_;
  const std::filesystem::path root_ =
      ::testing::TempDir() + "hccl_like_mpi" + std::to_string(::getpid());
};

using Names = std::vector<std::string>;

TEST_F(MpiSearch, NamesForTheLoaderWhereNoLauncherIsKnown) {
  EXPECT_EQ(
      mpi_candidates(surroundings(), {}),
      (Names{"libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12", "libmpi.so.40", "libmpi.so.80"}));
}

TEST_F(MpiSearch, TheLaunchersOwnComesFirst) {
  variables_["PMI_RANK"] = "0";
  launchers_ = {root_ / "bin/hydra_pmi_proxy", root_ / "bin/mpiexec.hydra"};
  const std::string standard = file("lib/libmpi_abi.so.1"), older = file("lib/libmpi.so.12");
  file("lib/libmpi.so.40");
  EXPECT_EQ(mpi_candidates(surroundings(),
                           {"/packages/lib/libmpi_abi.so.1", "/packages/lib/libmpi.so.40"}),
            (Names{standard, older, "libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12",
                   "/packages/lib/libmpi_abi.so.1"}));
}

TEST_F(MpiSearch, OpenMpisLauncherTakesOpenMpiAlone) {
  variables_ = {{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMI_RANK", "0"}, {"OPAL_PREFIX", root_}};
  const std::string library = file("lib/libmpi.so.40");
  file("lib/libmpi_abi.so.1");
  EXPECT_EQ(mpi_candidates(surroundings(),
                           {"/packages/lib/libmpi_abi.so.1", "/packages/lib/libmpi.so.40"}),
            (Names{library, "libmpi.so.40", "libmpi.so.80", "/packages/lib/libmpi.so.40"}));
}

TEST_F(MpiSearch, VariablesNameFolders) {
  variables_ = {{"PMI_RANK", "0"},
                {"I_MPI_ROOT", root_ / "intel"},
                {"CRAY_MPICH_DIR", root_ / "cray"},
                {"MPI_HOME", ""}};
  const std::string intel = file("intel/lib/release/libmpi.so.12"),
                    cray = file("cray/lib/libmpi.so.12");
  const Names found = mpi_candidates(surroundings(), {});
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ((Names{found[0], found[1]}), (Names{intel, cray}));
}

}  // namespace
}  // namespace hccl_like
