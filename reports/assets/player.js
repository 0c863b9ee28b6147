// The player: a cursor on the timeline in step with the recording; click, keys and buttons seek.
"use strict";

const FRAME_S = 0.08;
const player = document.querySelector("section.player");
const audio = player?.querySelector("audio");

if (audio) {
  const slider = player.querySelector(".seek");
  const scroller = player.querySelector(".timeline");
  const tracks = player.querySelector("svg.tracks");
  const cursor = tracks.querySelector(".cursor");
  const scale = Number(tracks.dataset.scale);
  const duration = Number(slider.getAttribute("aria-valuemax"));
  let wanted = null; // a seek asked for before the recording was loaded

  const position = () => wanted ?? audio.currentTime;

  const show = () => {
    const t = position();
    const x = t * scale;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    slider.setAttribute("aria-valuenow", t.toFixed(2));
    slider.setAttribute("aria-valuetext", `${t.toFixed(1)} seconds`);
    if (!audio.paused && (x < scroller.scrollLeft || x > scroller.scrollLeft + scroller.clientWidth - 20)) {
      scroller.scrollLeft = x - 40;
    }
  };

  const seek = (t) => {
    const to = Math.min(Math.max(t, 0), duration);
    if (audio.readyState >= HTMLMediaElement.HAVE_METADATA) {
      wanted = null;
      audio.currentTime = to;
    } else {
      wanted = to;
      if (audio.preload === "none") {
        audio.preload = "metadata";
        audio.load();
      }
    }
    show();
  };

  const toggle = () => (audio.paused ? audio.play().catch(() => {}) : audio.pause());

  const follow = () => {
    show();
    if (!audio.paused) requestAnimationFrame(follow);
  };

  audio.addEventListener("loadedmetadata", () => {
    if (wanted !== null) audio.currentTime = wanted;
    wanted = null;
    show();
  });
  audio.addEventListener("play", () => requestAnimationFrame(follow));
  for (const name of ["timeupdate", "seeked", "pause"]) audio.addEventListener(name, show);

  tracks.addEventListener("click", (event) => {
    const box = tracks.getBoundingClientRect();
    seek((event.clientX - box.left) / scale);
  });
  for (const button of document.querySelectorAll("[data-seek]")) {
    button.addEventListener("click", () => seek(Number(button.dataset.seek)));
  }

  const keys = {
    ArrowLeft: (shift) => seek(position() - (shift ? FRAME_S : 1)),
    ArrowRight: (shift) => seek(position() + (shift ? FRAME_S : 1)),
    Home: () => seek(0),
    End: () => seek(duration),
    " ": toggle,
  };
  for (const place of [slider, scroller]) {
    place.addEventListener("keydown", (event) => {
      const action = keys[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      action(event.shiftKey);
    });
  }
}

// Comparisons: one answer after the other, each from a second before the user's end to the end of its turn.
let round = 0; // of the last click: an earlier one ends
function playSpan(audio, mine, then) {
  const { from, to } = audio.dataset;
  const over = () => audio.ended || audio.currentTime >= Number(to) - 0.05;
  const stop = () => {
    for (const name of ["pause", "timeupdate", "ended"]) audio.removeEventListener(name, check);
  };
  function check() {
    if (mine !== round) {
      stop();
    } else if (over()) {
      stop();
      audio.pause();
      then();
    } else if (audio.paused) {
      stop(); // the listener's own pause ends the round
    }
  }
  const begin = () => {
    if (mine !== round) return;
    audio.currentTime = Number(from);
    audio.play().then(() => {
      for (const name of ["pause", "timeupdate", "ended"]) audio.addEventListener(name, check);
    }, () => {});
  };
  if (audio.readyState >= HTMLMediaElement.HAVE_METADATA) {
    begin();
  } else {
    audio.addEventListener("loadedmetadata", begin, { once: true });
    audio.preload = "auto";
    audio.load();
  }
}

for (const button of document.querySelectorAll("button.both")) {
  button.addEventListener("click", () => {
    const [first, second] = button.closest("article").querySelectorAll("audio");
    const mine = ++round;
    playSpan(first, mine, () => playSpan(second, mine, () => {}));
  });
}

// One recording at a time.
document.addEventListener("play", (event) => {
  for (const other of document.querySelectorAll("audio")) if (other !== event.target) other.pause();
}, true);
