;;; A stock of parts in Common Lisp: structures and texts in a heap that a copying collector cleans,
;;; one thread for each connection.
;;;
;;; usage: sbcl --script stock.lisp SOCKET PARTS SEED
(require :sb-bsd-sockets)
(require :sb-posix)

(defconstant +text-letters+ 600)

(defstruct part price text)

(defun make-pool (letters random)
  "Return a text to cut others from."
  (let ((pool (make-string letters :element-type 'base-char)))
    (map-into pool (lambda () (code-char (+ 97 (random 26 random)))))))

(defun make-stock (count seed)
  "Return a vector of COUNT parts, each with a text of its own."
  (let* ((random (sb-ext:seed-random-state seed))
         (letters 65536)
         (pool (make-pool letters random))
         (stock (make-array count)))
    (dotimes (number count stock)
      (let ((at (mod (* 7 number) (- letters +text-letters+))))
        (setf (svref stock number)
              (make-part :price (random 10000 random)
                         :text (subseq pool at (+ at +text-letters+))))))))

(defun answer (line stock)
  "Return the prices of the parts whose numbers LINE has, added up, and their texts."
  (let ((found (with-input-from-string (in line)
                 (loop for number = (let ((*read-eval* nil)) (read in nil))
                       while number
                       collect (svref stock number)))))
    (format nil "ok ~d~{ ~a~}"
            (reduce #'+ found :key #'part-price)
            (mapcar #'part-text found))))

(defun talk (client stock)
  "Answer each line of a client until it has gone."
  (let ((stream (sb-bsd-sockets:socket-make-stream
                 client :input t :output t :buffering :full :external-format :latin-1)))
    (handler-case
        (loop for line = (read-line stream nil)
              while line
              do (write-line (answer line stock) stream)
                 (finish-output stream))
      (stream-error ()))
    (close stream :abort t)))

(defun serve (path stock)
  "Answer whoever connects to the Unix socket PATH, for ever."
  (let ((server (make-instance 'sb-bsd-sockets:local-socket :type :stream))
        (early (concatenate 'string path ".early")))
    (sb-bsd-sockets:socket-bind server early)
    (sb-bsd-sockets:socket-listen server 64)
    ;; Under its name only once it answers.
    (sb-posix:rename early path)
    (loop (sb-thread:make-thread
           #'talk :arguments (list (sb-bsd-sockets:socket-accept server) stock)))))

(destructuring-bind (path parts seed) (last sb-ext:*posix-argv* 3)
  (serve path (make-stock (parse-integer parts) (parse-integer seed))))
