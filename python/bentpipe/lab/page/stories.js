// Stories: runs with captions at points in time.

import { find, make } from "./format.js";

export class Stories {
  constructor(run, open) {
    this.run = run;
    this.open = open;
    this.story = null;
  }

  list(stories, show) {
    find("stories").replaceChildren(...stories.map(story => make("li", {},
      make("h3", { textContent: story.title }), make("span", { textContent: story.summary }),
      make("button", { type: "button", textContent: "Tell it", "aria-label": `Tell: ${story.title}`, onclick: () => (show(), this.tell(story)) }))));
  }

  async tell(story) {
    this.story = story;
    this.told = -1;
    find("speed").value = String(story.speed);
    find("window").value = String(story.window ?? 60);
    await this.open({ name: story.scenario }, {
      settings: story.settings,
      changes: (story.change ?? []).map(each => [each.at, each.key, each.value]),
      stops: story.caption.slice(1).map(caption => caption.at),
    });
    this.at(0);
  }

  // Shows the caption of a time, at which the run has paused.
  at(now) {
    const story = this.story;
    if (!story) return;
    let place = -1;
    story.caption.forEach((caption, i) => caption.at <= now + 1e-9 && (place = i));
    if (place === this.told) return;
    this.told = place;
    const caption = story.caption[place], isLast = place === story.caption.length - 1;
    find("story").hidden = false;
    find("story").replaceChildren(
      make("p", {}, make("b", { textContent: story.title }), ` ${place + 1} of ${story.caption.length}`),
      make("p", { textContent: caption.text }),
      make("div", { className: "group" },
        isLast ? null : make("button", { type: "button", id: "go-on", className: "main", textContent: "Go on", onclick: () => this.run.play() }),
        make("button", { type: "button", textContent: isLast ? "End of the story" : "Leave the story", onclick: () => this.leave() })));
  }

  leave() {
    this.story = null;
    this.run.stops = [];
    find("story").hidden = true;
  }
}
