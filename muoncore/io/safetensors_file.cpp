#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "muoncore/core/check.h"
#include "muoncore/io/safetensors.h"

namespace muoncore::io {
namespace {

std::span<const std::byte> map_file(const std::filesystem::path& path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(descriptor >= 0, "cannot read {}: {}", path.string(), std::strerror(errno));
  struct stat status {};
  void* address = nullptr;
  bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  auto size = static_cast<size_t>(status.st_size);
  if (regular && size > 0) address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  int reason = errno;
  ::close(descriptor);
  check(regular, "cannot read {}: not a regular file", path.string());
  check(address != MAP_FAILED, "cannot map {}: {}", path.string(), std::strerror(reason));
  return {static_cast<const std::byte*>(address), size};
}

void unmap(std::span<const std::byte> mapped) {
  if (!mapped.empty()) ::munmap(const_cast<std::byte*>(mapped.data()), mapped.size());
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path path)
    : path_(std::move(path)), mapped_(map_file(path_)) {
  try {
    contents_ = parse_safetensors(mapped_, path_.string());
  } catch (...) {
    unmap(mapped_);
    throw;
  }
  for (size_t i = 0; i < entries().size(); ++i) index_.emplace(entries()[i].name, i);
}

SafetensorsFile::~SafetensorsFile() { unmap(mapped_); }

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries()[found->second];
}

const SafetensorsEntry& SafetensorsFile::at(std::string_view name) const {
  if (const SafetensorsEntry* entry = find(name)) return *entry;
  std::vector<std::string> names;
  for (const auto& entry : entries()) names.push_back(entry.name);
  std::string near = nearest_name(name, names);
  fail("{}: no tensor \"{}\"{}", path_.string(), name,
       near.empty() ? std::string() : fmt::format("; did you mean \"{}\"?", near));
}

}  // namespace muoncore::io
