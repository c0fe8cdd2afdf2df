// One thread that runs jobs in the order in which they were given. It starts with the first job.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace muoncore::comm {

class Worker {
 public:
  Worker() = default;
  ~Worker();  // runs what was given, then ends
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void push(std::function<void()> job);  // a job must not throw

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace muoncore::comm
