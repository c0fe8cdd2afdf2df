#include "muoncore/comm/store.h"

#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "muoncore/comm/store_impl.h"
#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

template <typename Fn>
auto guarded(const std::string& address, const Fn& fn) {
  try {
    return fn();
  } catch (const std::exception& e) {
    fail("store {}: {}", address, plain_text(e));
  }
}

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

std::string plain_text(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  std::string text = error ? error->what_without_backtrace() : e.what();
  text = text.substr(0, text.find("\nException raised from"));
  while (!text.empty() && text.front() == '[') {  // "[file.cc:123] "
    size_t end = text.find("] ");
    if (end == std::string::npos || text.find(':') > end) break;
    text.erase(0, end + 2);
  }
  for (char& c : text)
    if (c == '\n') c = ' ';
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

Store Store::in_process() {
  auto impl = std::make_shared<Impl>();
  impl->store = c10::make_intrusive<c10d::HashStore>();
  impl->address = "in this process";
  return Store(impl);
}

Store Store::serve(int port) {
  auto impl = std::make_shared<Impl>();
  impl->address = fmt::format("on port {}", port);
  guarded(impl->address, [&] {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.isServer = true;
    options.waitWorkers = false;
    auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    impl->port = store->getPort();
    impl->store = store;
  });
  impl->address = fmt::format("127.0.0.1:{}", impl->port);
  return Store(impl);
}

Store Store::connect(const std::string& host, int port, std::chrono::milliseconds timeout) {
  auto impl = std::make_shared<Impl>();
  impl->address = fmt::format("{}:{}", host, port);
  impl->port = port;
  guarded(impl->address, [&] {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.waitWorkers = false;
    options.timeout = timeout;
    impl->store = c10::make_intrusive<c10d::TCPStore>(host, options);
  });
  return Store(impl);
}

int Store::port() const { return impl_->port; }

const std::string& Store::address() const { return impl_->address; }

Store Store::prefixed(const std::string& prefix) const {
  auto impl = std::make_shared<Impl>(*impl_);
  impl->store = c10::make_intrusive<c10d::PrefixStore>(prefix, impl_->store);
  return Store(impl);
}

Store Store::clone() const {
  auto impl = std::make_shared<Impl>(*impl_);
  guarded(impl->address, [&] { impl->store = impl_->store->clone(); });
  return Store(impl);
}

void Store::set(const std::string& key, const std::string& value) {
  guarded(address(), [&] { impl_->store->set(key, bytes(value)); });
}

std::optional<std::string> Store::try_get(const std::string& key) {
  return guarded(address(), [&]() -> std::optional<std::string> {
    if (!impl_->store->check({key})) return std::nullopt;
    return text(impl_->store->get(key));
  });
}

std::vector<std::string> Store::get_all(const std::vector<std::string>& keys) {
  return guarded(address(), [&] {
    std::vector<std::string> values;
    for (const std::vector<uint8_t>& value : impl_->store->multiGet(keys))
      values.push_back(text(value));
    return values;
  });
}

bool Store::has_all(const std::vector<std::string>& keys) {
  return guarded(address(), [&] { return impl_->store->check(keys); });
}

int64_t Store::add(const std::string& key, int64_t amount) {
  return guarded(address(), [&] { return impl_->store->add(key, amount); });
}

std::string Store::set_if_absent(const std::string& key, const std::string& value) {
  return guarded(address(), [&] { return text(impl_->store->compareSet(key, {}, bytes(value))); });
}

}  // namespace muoncore::comm
