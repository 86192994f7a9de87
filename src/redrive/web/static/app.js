// On every page for people who are signed in.

import "./account.js";
import "./acts.js";
import "./copy.js";
import "./dialogs.js";
import "./forms.js";
import "./keys.js";
import "./live.js";
import "./times.js";
import { showWaiting } from "./toast.js";

showWaiting();
