// trifold_jinja.so: embeds Python and renders templates with render.py, whose text is compiled in.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstring>
#include <mutex>
#include <string>

#include "tokenize/chat/jinja_module.h"

namespace {

constexpr const char* kRenderer =
#include <render_py.inc>
    ;

// A reference that is owned.
class Object {
 public:
  explicit Object(PyObject* object = nullptr) : object_(object) {}
  ~Object() { Py_XDECREF(object_); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  PyObject* get() const { return object_; }
  PyObject* release() {
    PyObject* const object = object_;
    object_ = nullptr;
    return object;
  }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};

// Holds Python's lock, from whatever thread.
class PythonLock {
 public:
  PythonLock() : state_(PyGILState_Ensure()) {}
  ~PythonLock() { PyGILState_Release(state_); }
  PythonLock(const PythonLock&) = delete;
  PythonLock& operator=(const PythonLock&) = delete;

 private:
  PyGILState_STATE state_;
};

// The pending exception as text, which is then no longer pending.
std::string take_error() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const Object owned[] = {Object(type), Object(value), Object(trace)};
  const Object text(value != nullptr ? PyObject_Str(value) : nullptr);
  const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string said = words != nullptr ? words : "an error without a text";
  PyErr_Clear();
  return said;
}

// The embedded interpreter with render.py's functions. It lives until the process ends: libraries of Python do not
// survive a second start.
class Renderer {
 public:
  Renderer() {
    // Of the environment and the user's folders nothing is read, and no signal handler is set: an interrupt is the
    // program's.
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    config.site_import = 0;
    config.install_signal_handlers = 0;
    config.write_bytecode = 0;
    const PyStatus status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status) != 0) {
      problem_ = status.err_msg != nullptr ? status.err_msg : "Python does not start";
      return;
    }
    load();
    PyEval_SaveThread();  // releases the lock that starting takes
  }

  const std::string& problem() const { return problem_; }
  const std::string& versions() const { return versions_; }
  PyObject* compile() const { return compile_; }
  PyObject* render() const { return render_; }

 private:
  void load() {
    const Object folder(PyUnicode_FromString(TRIFOLD_JINJA_FOLDER));
    PyObject* const path = PySys_GetObject("path");  // borrowed
    if (!folder || path == nullptr || PyList_Append(path, folder.get()) != 0) return fail();
    const Object code(Py_CompileString(kRenderer, "render.py", Py_file_input));
    const Object module(code ? PyImport_ExecCodeModule("trifold_render", code.get()) : nullptr);
    if (!module) return fail();
    compile_ = PyObject_GetAttrString(module.get(), "compile_template");
    render_ = PyObject_GetAttrString(module.get(), "render");
    const Object versions(PyObject_GetAttrString(module.get(), "VERSIONS"));
    const char* text = versions ? PyUnicode_AsUTF8(versions.get()) : nullptr;
    if (compile_ == nullptr || render_ == nullptr || text == nullptr) return fail();
    versions_ = text;
  }
  void fail() { problem_ = take_error(); }

  std::string problem_, versions_;
  PyObject* compile_ = nullptr;
  PyObject* render_ = nullptr;
};

const Renderer& renderer() {
  static const Renderer* const kRendererOfProcess = new Renderer;
  return *kRendererOfProcess;
}

class Template final : public trifold::JinjaModuleTemplate {
 public:
  explicit Template(PyObject* compiled) : compiled_(compiled) {}
  ~Template() override {
    const PythonLock lock;
    Py_DECREF(compiled_);
  }

  void render(const char* request, size_t bytes, void (*take)(void* to, const char* text, size_t size),
              void* to) override {
    const PythonLock lock;
    const Object text(PyUnicode_DecodeUTF8(request, static_cast<Py_ssize_t>(bytes), "strict"));
    const Object answer(
        text ? PyObject_CallFunctionObjArgs(renderer().render(), compiled_, text.get(), nullptr) : nullptr);
    Py_ssize_t size = 0;
    const char* words = answer ? PyUnicode_AsUTF8AndSize(answer.get(), &size) : nullptr;
    if (words != nullptr) return take(to, words, static_cast<size_t>(size));
    take_error();
    const char* problem = R"({"problem": "Python failed", "line": 0})";
    take(to, problem, std::strlen(problem));
  }

 private:
  PyObject* compiled_;
};

void say(const std::string& problem, char* why, size_t bytes) {
  const size_t size = problem.size() < bytes ? problem.size() : bytes - 1;
  std::memcpy(why, problem.data(), size);
  why[size] = '\0';
}

}  // namespace

extern "C" {

int64_t trifold_jinja_version() { return trifold::kJinjaModuleVersion; }

const char* trifold_jinja_library() {
  static const std::string* const kText = new std::string(
      renderer().problem().empty() ? renderer().versions() : "problem: " + renderer().problem());
  return kText->c_str();
}

trifold::JinjaModuleTemplate* trifold_jinja_compile(const char* source, size_t size, char* why,
                                                    size_t bytes) {
  if (!renderer().problem().empty()) {
    say(renderer().problem(), why, bytes);
    return nullptr;
  }
  const PythonLock lock;
  const Object text(PyUnicode_DecodeUTF8(source, static_cast<Py_ssize_t>(size), "strict"));
  const Object pair(text ? PyObject_CallFunctionObjArgs(renderer().compile(), text.get(), nullptr) : nullptr);
  PyObject *compiled = nullptr, *problem = nullptr;  // borrowed
  if (!pair || PyArg_ParseTuple(pair.get(), "OO", &compiled, &problem) == 0) {
    say(take_error(), why, bytes);
    return nullptr;
  }
  if (compiled != Py_None) {
    Py_INCREF(compiled);
    return new Template(compiled);
  }
  const char* words = PyUnicode_AsUTF8(problem);
  say(words != nullptr ? words : "it cannot be compiled", why, bytes);
  return nullptr;
}

}  // extern "C"
