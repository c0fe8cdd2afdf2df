// Config files for tests: each is written under a name of its own and removed with the fixture.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "muoncore/core/check.h"
#include "muoncore/train/config.h"

namespace muoncore::train {

class ConfigFiles : public ::testing::Test {
 public:
  ConfigFiles() {
    static int count = 0;
    folder = std::filesystem::temp_directory_path() /
             ("muoncore_config_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(folder);
  }
  ~ConfigFiles() override { std::filesystem::remove_all(folder); }

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

  static std::string error_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  std::filesystem::path folder;
};

}  // namespace muoncore::train
