// Config files for tests: each is written under a name of its own and removed with the fixture.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "muoncore/train/config.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace muoncore::train {

class ConfigFiles : public ::testing::Test {
 public:
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::ofstream(folder / name) << content;
    return folder / name;
  }

  Config load(ConfigKind kind, const std::string& content,
              const std::vector<std::string>& overrides = {}) const {
    return load_config(kind, write("f.yaml", content), overrides);
  }

  std::string error(ConfigKind kind, const std::string& content,
                    const std::vector<std::string>& overrides = {}) const {
    return error_of([&] { load(kind, content, overrides); });
  }

  ScratchFolder scratch;
  const std::filesystem::path& folder = scratch.path();
};

}  // namespace muoncore::train
