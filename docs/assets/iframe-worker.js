// Search in a page that was opened as a file: browsers start no worker there, so the script of the worker runs in a hidden
// frame instead. The theme would load a script of this name and purpose from the network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #ready;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      this.#ready = new Promise((resolve, reject) => {
        this.#frame.onload = () => {
          const inside = this.#frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inside.document.createElement("script");
          Object.assign(script, { src: url, onload: () => resolve(inside), onerror: reject });
          inside.document.body.append(script);
        };
      });
      document.body.append(this.#frame);
    }

    postMessage(data) {
      this.#ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
